"""What came of a program."""

from dataclasses import dataclass
from typing import Literal

Status = Literal["passed", "failed", "error", "timeout", "memory", "killed"]
Verdict = Literal["passed", "failed", "error", "not run", "not counted"]


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """The end of one program, as the trusted side saw it.

    `status`: passed (it ran to its end; with tests, all of them hold), failed (it ran and a test
    does not hold), error (it raised, did not compile, left before its end, or wrote into the
    private channel), timeout, memory (it ran out of it), killed (by a signal, for too much output
    or too many files, or together with its server).
    """

    status: Status
    stdout: str = ""
    """What it printed, cut at the sandbox's limit; bytes that are no UTF-8 are replaced."""
    error: str = ""
    """One line on why it did not pass; the program's own words, so untrusted text."""
    verdicts: tuple[Verdict, ...] = ()
    """One per assert, in order. Not counted: only the program's own process could have decided it,
    which can cheat."""
    seconds: float = 0.0
    """Wall-clock time of the program, without waiting for a free worker."""

    @property
    def total(self) -> int:
        """How many asserts count."""
        return len(self.verdicts) - self.verdicts.count("not counted")

    @property
    def passed(self) -> int:
        """How many asserts held."""
        return self.verdicts.count("passed")
