"""From the end of a child and its transcript to a result: the one place where verdicts are made."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from teamtune.sandbox.asserts import Assert
from teamtune.sandbox.job import Ending
from teamtune.sandbox.judges import decide
from teamtune.sandbox.result import SandboxResult, Status, Verdict
from teamtune.sandbox.transcript import Forged, Step, Transcript, read_transcript
from teamtune.sandbox.values import Refused

_NOT_COUNTED: tuple[Verdict, str] = ("not counted", "")


def score_run(ending: Ending) -> SandboxResult:
    """The result of a script: passed where it ran to its end and said so."""
    try:
        transcript = read_transcript(ending.channel, 0)
    except Forged as error:
        return _broken(ending, error)
    return _finished(ending, transcript) or _result(ending, "passed")


def score_asserts(ending: Ending, tests: Sequence[Assert | None]) -> SandboxResult:
    """The result of a tested program; None is a test that does not count."""
    count = sum(len(test.parts) for test in tests if test)
    try:
        transcript = read_transcript(ending.channel, count)
    except Forged as error:
        nothing: list[Verdict] = ["not run" if test else "not counted" for test in tests]
        return replace(_broken(ending, error), verdicts=tuple(nothing))
    steps = iter(transcript.steps[1:])
    judged = [_judge(test, steps) if test else _NOT_COUNTED for test in tests]
    ended = _finished(ending, transcript)
    if ended is None:
        why = next((f"assert {i}: {why}" for i, (_, why) in enumerate(judged) if why), "")
        status: Status = "failed" if why else "passed"
        if why and any(step.memory for step in transcript.steps):
            status = "memory"
        ended = _result(ending, status, why)
    return replace(ended, verdicts=tuple(verdict for verdict, _ in judged))


def _judge(test: Assert, steps: Iterator[Step]) -> tuple[Verdict, str]:
    """The verdict on one test and why it does not hold; takes its steps."""
    taken = [next(steps, None) for _ in test.parts]
    for part, step in zip(test.parts, taken):
        if step is None:
            return "not run", "not run"
        if step.kind == "raised":
            return "error", step.error
        try:
            held, why = decide(part.judge, step.payload)
        except Refused as error:
            return "error", str(error)
        if not held:
            return "failed", why
    return "passed", ""


def _finished(ending: Ending, transcript: Transcript) -> SandboxResult | None:
    """The result of a program that did not come to its end, None for one that did."""
    if ending.overflow:
        return _result(ending, "killed", f"too much {ending.overflow}")
    if ending.why == "timeout":
        return _result(ending, "timeout", "the time limit")
    if ending.why == "disk":
        return _result(ending, "killed", "too many or too large files")
    if ending.why == "died":
        return _result(ending, "killed", "its server died under it, twice")
    first = transcript.steps[0] if transcript.steps else None
    if first is not None and first.kind == "raised":
        return _result(ending, "memory" if first.memory else "error", first.error)
    if ending.why == "signal":
        return _result(ending, "killed", f"signal {ending.code}")
    if not transcript.done:
        return _result(ending, "error", f"left before its end, exit status {ending.code}")
    return None


def _broken(ending: Ending, error: ValueError) -> SandboxResult:
    """Nothing in the channel counts; a limit that was hit is still named."""
    named = _finished(ending, Transcript((), False))
    if named is not None and named.status != "error":
        return named
    return _result(ending, "error", f"wrote into the private channel: {error}")


def _result(ending: Ending, status: Status, error: str = "") -> SandboxResult:
    stdout = ending.stdout.decode("utf-8", "replace")
    return SandboxResult(status, stdout, error, seconds=ending.seconds)
