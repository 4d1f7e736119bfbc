"""An engine that answers from a function, for tests of everything around a model."""

from collections.abc import Callable, Iterable, Sequence

from torch import Tensor

from teamtune.inference.chat import CharChat
from teamtune.inference.engine import Completion, RolloutEngine, Sampling


class ScriptedEngine(RolloutEngine):
    """Completion k of a prompt is `fn(prompt, seed + k)`, with log-prob 0 for every character."""

    def __init__(self, fn: Callable[[str, int], str], sampling: Sampling | None = None):
        """
        Args:
            fn: From the prompt's text and a seed to the answer. An exception fails the completion.
            sampling: Default sampling; nothing is drawn, but `max_tokens` cuts the answer.
        """
        self.fn = fn
        self.chat = CharChat()
        self.sampling = sampling or Sampling(max_tokens=1_000_000)
        self.version = 0

    async def generate(
        self,
        prompt_ids: Sequence[int],
        n: int = 1,
        sampling: Sampling | None = None,
        seed: int = 0,
    ) -> list[Completion]:
        limit = (sampling or self.sampling).max_tokens
        prompt = self.chat.decode(prompt_ids)
        return [self._answer(prompt, seed + k, limit) for k in range(n)]

    def _answer(self, prompt: str, seed: int, limit: int) -> Completion:
        try:
            text = self.fn(prompt, seed)
        except Exception:  # noqa: BLE001 - the generation boundary: whatever the script raises
            return Completion((), (), "", "failed", self.version)
        ids = (*(ord(c) for c in text), 0)
        cut = len(ids) > limit
        ids = ids[:limit]
        return Completion(
            token_ids=ids,
            logprobs=(0.0,) * len(ids),
            text=self.chat.decode(ids),
            stop_reason="length" if cut else "stop",
            version=self.version,
        )

    def load_weights(self, named_tensors: Iterable[tuple[str, Tensor]], version: int) -> None:
        self.version = version
