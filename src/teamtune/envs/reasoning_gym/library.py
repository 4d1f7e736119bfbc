"""A generator of reasoning-gym, in processes of its own: what it makes, and what answers are worth.

There a generator or a verifier may hang, break or change global state, and answers that a verifier
evaluates can do nothing; see `judge.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from teamtune.envs.judges import Ended, JudgeFailed, Judges
from teamtune.errors import ConfigError

_SCRIPT = Path(__file__).parent / "judge.py"
_MEMORY_MB = 4096
_MAKING_SECONDS = 60.0
"""Of processor time for one problem; the slowest generators take ten."""
_SEEDS = 1 << 32
"""Seeds that numpy takes, which some generators use."""


@dataclass(frozen=True, slots=True)
class Score:
    """What an answer is worth, 0 to 1; 0 where the verifier fails, and then why."""

    worth: float = 0.0
    trouble: str = ""


class Library:
    """One generator with its options."""

    def __init__(
        self, dataset: str, options: Mapping[str, Any], timeout: float, workers: int | None
    ):
        """
        Args:
            dataset: Its name.
            options: What it takes.
            timeout: Seconds of processor time for one answer.
            workers: Requests at the same time; null is one per CPU, 8 at most.
        """
        self.dataset = dataset
        self.options = dict(options)
        self.timeout = timeout
        self.judges = Judges(_SCRIPT, (_MEMORY_MB,), workers)

    def make(self, seed: int) -> dict[str, Any]:
        """`question`, `answer` (None where the verifier needs none) and `metadata` of a seed.

        Raises:
            ConfigError: reasoning-gym is not installed, it has no such generator, or that refuses
                its options or fails.
        """
        try:
            found: dict[str, Any] = self._ask(_MAKING_SECONDS, "make", seed % _SEEDS)
        except Ended as end:
            why = f"takes more than {_MAKING_SECONDS:g} s" if end.slow else "ends its process"
            raise ConfigError(f"options: {self.dataset} {why} to make problem {seed}") from end
        if "refused" in found:
            raise ConfigError(found["refused"])
        if "error" in found:
            raise ConfigError(
                f"options: {self.dataset} with {self.options} makes no problem {seed}: "
                f"{found['error']}"
            )
        return found

    async def score(self, problem: Mapping[str, Any], answer: str) -> Score:
        """What an answer to a problem of `make` is worth. Raises JudgeFailed, and ConfigError."""
        return await self.judges.aside(self._score, dict(problem), answer)

    def _score(self, problem: dict[str, Any], answer: str) -> Score:
        try:
            found = self._ask(self.timeout, "score", problem, answer)
        except Ended as end:
            return Score(trouble="It takes too long to check." if end.slow else "It breaks.")
        if "error" in found:
            return Score(trouble=f"It cannot be read: {found['error']}")
        return Score(found["score"])

    def _ask(self, seconds: float, what: str, *arguments: Any) -> Any:
        try:
            return self.judges.ask([seconds, what, self.dataset, self.options, *arguments])
        except JudgeFailed:
            if find_spec("reasoning_gym") is None:
                raise ConfigError(
                    'reasoning-gym is not installed: pip install "teamtune[gym]"'
                ) from None
            raise
