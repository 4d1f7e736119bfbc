"""What a rollout needs of a language model: token ids in, token ids and their log-probs out."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from teamtune.errors import ConfigError
from teamtune.inference.chat import ChatFormat
from teamtune.ranges import NonNegative, NonNegativeInt, PositiveInt, PositiveShare

Dtype = Literal["float32", "bfloat16", "float16"]
"""Number formats of an engine's weights and cache."""
StopReason = Literal["stop", "length", "failed", "too_long"]


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn."""

    temperature: NonNegative = 1.0
    """Logits are divided by it before sampling and before scoring; 0 takes the likeliest token."""
    max_tokens: PositiveInt = 256
    """Longest completion, in tokens; one that is cut has the stop reason `length`."""
    top_p: PositiveShare = 1.0
    """Nucleus sampling; only for evaluation, for the trainer scores another distribution."""
    top_k: NonNegativeInt = 0
    """Sample among the k likeliest tokens; 0 takes all. Only for evaluation, as top_p."""

    def check_trainable(self, key: str) -> None:
        """Raises ConfigError where the sampled distribution is not the one the trainer scores."""
        if self.temperature == 0:
            raise ConfigError(f"{key}.temperature: got 0, allowed for training: more than 0")
        if self.top_p != 1:
            raise ConfigError(f"{key}.top_p: got {self.top_p}, allowed for training: 1")
        if self.top_k != 0:
            raise ConfigError(f"{key}.top_k: got {self.top_k}, allowed for training: 0 (off)")


@dataclass(frozen=True)
class Completion:
    """One sampled answer.

    `token_ids` includes the end token where one was sampled. `logprobs[t]` is the log-prob of
    `token_ids[t]` under the distribution it was drawn from (at temperature 0: under temperature 1).
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str
    stop_reason: StopReason
    version: int
    """How many weight updates the policy had seen."""


class RolloutEngine(ABC):
    """Generates for one policy. It owns the policy's chat format and default sampling."""

    chat: ChatFormat
    sampling: Sampling
    version: int = -1
    """The policy version of the loaded weights; -1 until `load_weights` was called."""
    context_length: int = sys.maxsize
    """Longest prompt and completion together, in tokens."""

    @classmethod
    def check_installed(cls) -> None:
        """Raises ConfigError, with the command that installs it, where a needed package is missing.

        The command calls it before it writes anything.
        """

    @classmethod
    def check_model(cls, model: Any, sampling: Sampling, **settings: Any) -> None:
        """Raises ConfigError for what this engine cannot do; nothing has been made or written yet.

        Args:
            model: The model's configuration, as transformers reads it.
            sampling: The default sampling.
            settings: Further arguments of the constructor.
        """
        context = longest(model)
        if sampling.max_tokens >= context:
            raise ConfigError(
                f"rollout.sampling.max_tokens: got {sampling.max_tokens}, allowed: less than the "
                f"model's context of {context} tokens, for a prompt has to fit as well"
            )

    @classmethod
    def check_together(cls, models: Sequence[Any]) -> None:
        """Raises ConfigError where engines of these models cannot live in one process."""

    @classmethod
    def memory(
        cls, model: Any, sampling: Sampling, samples: int, gpu: int | None, **settings: Any
    ) -> float:
        """Bytes that weights and cache take; 0 where they are in no process of ours.

        Args:
            model: The model's configuration.
            sampling: The default sampling.
            samples: Most answers in the making at once.
            gpu: Bytes of a GPU; None without one.
            settings: Further arguments of the constructor.
        """
        return 0.0

    @abstractmethod
    async def generate(
        self,
        prompt_ids: Sequence[int],
        n: int = 1,
        sampling: Sampling | None = None,
        seed: int = 0,
    ) -> list[Completion]:
        """`n` completions of one prompt; completion k depends on `seed + k`, not on what else runs.

        A prompt that leaves no room for an answer is not answered: `too_long` is the stop reason.
        """

    @abstractmethod
    def load_weights(self, named_tensors: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Replaces every weight and forgets what was cached under the old ones.

        Names are those of the Hugging Face state dict; a tied head may be given or left out.

        Raises:
            ValueError: A name is unknown, or one is missing.
        """

    def close(self) -> None:
        """Frees what the engine holds; it cannot generate afterwards."""


def longest(model: Any) -> int:
    """The most tokens that a model reads, by its configuration; without a limit a huge number."""
    limit = getattr(model.get_text_config(), "max_position_embeddings", None)
    return sys.maxsize if limit is None else int(limit)
