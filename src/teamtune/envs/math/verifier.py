"""Whether two answers are the same mathematics, decided by math-verify where nothing can hang.

Plain numbers are compared here. All else goes to processes of their own, which the kernel ends when
their time is over; a new one takes the next question.
"""

import re
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from teamtune.envs.judges import Ended, JudgeFailed, Judges
from teamtune.errors import ConfigError
from teamtune.ranges import Positive, PositiveInt

Comparison = Literal["equal", "different", "unreadable", "too slow"]
"""`unreadable`: the answer, or the gold one, is no mathematics that can be read."""
TOLERANCE = Fraction(1, 10**6)
MAX_LENGTH = 1000
"""Characters of an answer; a longer one is unreadable."""
_NUMBER = re.compile(r"[+-]?\d{1,40}(/\d{1,40}|(\.\d{1,40})?([eE][+-]?\d{1,3})?)")
_AROUND = re.compile(r"\\[()\[\]]|\$")
_SCRIPT = Path(__file__).parent / "judge.py"


class Verifier:
    """Compares answers. Safe for use from any thread and any event loop, like `Sandbox`."""

    def __init__(
        self,
        timeout: Positive = 5.0,
        memory_mb: PositiveInt = 2048,
        workers: PositiveInt | None = None,
    ):
        """
        Args:
            timeout: Seconds of processor time for one comparison.
            memory_mb: Address space of a process that compares, in MiB.
            workers: Comparisons at the same time; null is one per CPU, 8 at most.
        """
        self.timeout = timeout
        self.judges = Judges(_SCRIPT, (timeout, memory_mb), workers)
        self._read: dict[str, bool] = {}

    def check(self) -> None:
        """Raises ConfigError where math-verify is not installed."""
        if find_spec("math_verify") is None:
            raise ConfigError('math-verify is not installed: pip install "teamtune[math]"')

    def reads(self, gold: str) -> bool:
        """Whether a gold answer can be read, and in time. See `compare_sync` for what it raises."""
        if gold not in self._read:
            self._read[gold] = self.compare_sync(gold, gold) == "equal"
        return self._read[gold]

    async def compare(self, gold: str, answer: str) -> Comparison:
        """How `answer` compares with `gold`; see `compare_sync`."""
        known = _at_once(gold, answer)
        if known is not None:
            return known
        return await self.judges.aside(self.compare_sync, gold, answer)

    def compare_sync(self, gold: str, answer: str) -> Comparison:
        """How `answer` compares with `gold`, both LaTeX or plain, without a box.

        Numbers are equal that differ by 1e-6 at most.

        Raises:
            ConfigError: math-verify is not installed.
            JudgeFailed: No process starts.
        """
        known = _at_once(gold, answer)
        if known is not None:
            return known
        try:
            gold_read, answer_read, equal = self.judges.ask([_bare(gold), _bare(answer)])
        except Ended as end:
            return "too slow" if end.slow else "unreadable"
        except JudgeFailed:
            self.check()
            raise
        if not (gold_read and answer_read):
            return "unreadable"
        return "equal" if equal else "different"

    def close(self) -> None:
        """Ends the processes; the next comparison starts new ones."""
        self.judges.close()


def _at_once(gold: str, answer: str) -> Comparison | None:
    """The verdict where it takes no mathematics: on plain numbers, and on what cannot be any."""
    if max(len(gold), len(answer)) > MAX_LENGTH or not (_bare(answer) and _closes(answer)):
        return "unreadable"
    numbers = _number(_bare(gold)), _number(_bare(answer))
    if numbers[0] is None or numbers[1] is None:
        return None
    return "equal" if abs(numbers[0] - numbers[1]) <= TOLERANCE else "different"


def _number(text: str) -> Fraction | None:
    try:
        return Fraction(text) if _NUMBER.fullmatch(text) else None
    except ZeroDivisionError:
        return None


def _closes(text: str) -> bool:
    """Whether no brace closes what the text has not opened, such as the box that it is put in."""
    depth = 0
    for brace in re.findall(r"(?<!\\)[{}]", text):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            return False
    return depth == 0


def _bare(text: str) -> str:
    """Without the signs that begin and end mathematics in a text."""
    return _AROUND.sub(" ", text).strip().rstrip(".").strip()
