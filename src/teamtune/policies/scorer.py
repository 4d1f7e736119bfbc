"""Token log-probs of packed groups without the [tokens x vocabulary] matrix.

The body runs once over each row [prompt | candidate 1 | ... | candidate K]; the head runs in chunks
over response tokens only, and the backward pass computes again the chunks that there is no room to
keep.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from teamtune.errors import ConfigError
from teamtune.policies.attention import FULL, NAME, SLIDING, Layout

if TYPE_CHECKING:
    from teamtune.experience.packing import PackedBatch


def check_scorable(config: Any) -> None:
    """Raises ConfigError for a model that computes log-probs in a way that TokenScorer does not.

    Args:
        config: The model's configuration, as transformers reads it.
    """
    config = config.get_text_config()
    if unknown := set(getattr(config, "layer_types", None) or ()) - {FULL, SLIDING}:
        raise ConfigError(f"model: has layers of {min(unknown)}, allowed: {FULL}, {SLIDING}")
    for name in ("logits_scaling", "logit_scale"):
        if (value := getattr(config, name, None)) not in (None, 1):
            raise ConfigError(f"model: scales its logits ({name} {value}), allowed: 1")


class TokenScorer(nn.Module):
    """A causal LM whose forward pass returns log-probs (and entropy) of given response tokens.

    A module of its own, so that sharding hooks, which run around `forward`, cover the head.
    """

    def __init__(self, lm: nn.Module, chunk_size: int = 1024, kept_bytes: float = 0.0):
        super().__init__()
        self.lm: Any = lm
        self.chunk_size = chunk_size
        self.kept_bytes = kept_bytes

    def forward(
        self, batch: "PackedBatch", temperature: float = 1.0, entropy: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Log-probs and entropies in nats, [N] float32 each, in the order of `batch.targets`.

        The temperature divides the logits, as in sampling. Without `entropy` its values carry no
        gradient.
        """
        hidden = self.lm.get_decoder()(
            input_ids=batch.input_ids,
            position_ids=batch.position_ids,
            use_cache=False,
            **self._visibility(batch),
        ).last_hidden_state
        states = hidden.flatten(0, 1)[batch.predicted_from]
        pairs = []
        room = self.kept_bytes
        for part, targets in zip(
            states.split(self.chunk_size), batch.targets.split(self.chunk_size)
        ):
            room -= len(part) * self._bytes_per_token(entropy)
            head = self._head if room >= 0 else partial(checkpoint, self._head, use_reentrant=False)
            pairs.append(head(part, targets, temperature, entropy))
        return torch.cat([p[0] for p in pairs]), torch.cat([p[1] for p in pairs])

    def _visibility(self, batch: "PackedBatch") -> dict[str, Any]:
        """What the blocks may see: a layout, or a mask for each kind of block."""
        config = self.lm.config.get_text_config()
        if config._attn_implementation == NAME:
            return {"packed": Layout(batch)}
        device = batch.input_ids.device.type
        dtype = self.lm.get_input_embeddings().weight.dtype
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
        window = getattr(config, "sliding_window", None)
        kinds = set(getattr(config, "layer_types", None) or [SLIDING if window else FULL])
        widths = {FULL: None, SLIDING: window}
        masks = {kind: batch.attention_mask(dtype, widths[kind]) for kind in sorted(kinds)}
        return {"attention_mask": masks if len(masks) > 1 else masks.popitem()[1]}

    def _bytes_per_token(self, entropy: bool) -> int:
        """What the head's backward pass needs of its forward pass: float32 rows of the vocabulary.

        They are the scores, their exponentials for the entropy's gradient, and what a cap makes.
        """
        config = self.lm.config.get_text_config()
        capped = bool(getattr(config, "final_logit_softcapping", None))
        return 4 * config.vocab_size * (1 + entropy + capped)

    def _head(
        self, states: Tensor, targets: Tensor, temperature: float, entropy: bool
    ) -> tuple[Tensor, Tensor]:
        logits = self.lm.get_output_embeddings()(states).float()
        cap = getattr(self.lm.config.get_text_config(), "final_logit_softcapping", None)
        if cap:
            logits = cap * torch.tanh(logits / cap)
        scores = torch.log_softmax(logits / temperature, dim=-1)
        chosen = scores.gather(1, targets[:, None])[:, 0]
        with torch.set_grad_enabled(entropy and torch.is_grad_enabled()):
            entropies = -(scores.exp() * scores).sum(-1)
        return chosen, entropies
