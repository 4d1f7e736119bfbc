"""From the end of a child and its transcript to a result: the one place where verdicts are made."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from teamtune.sandbox.asserts import Assert
from teamtune.sandbox.job import Ending
from teamtune.sandbox.judges import decide
from teamtune.sandbox.result import SandboxResult, Status, Verdict
from teamtune.sandbox.transcript import Forged, Step, Transcript, read_transcript
from teamtune.sandbox.values import Refused


def score_run(ending: Ending) -> SandboxResult:
    """The result of a script: passed where it ran to its end and said so."""
    try:
        transcript = read_transcript(ending.channel, 0)
    except Forged as error:
        return _broken(ending, error)
    return _finished(ending, transcript) or _result(ending, "passed")


def score_asserts(ending: Ending, tests: Sequence[Assert]) -> SandboxResult:
    """The result of a tested program. What was not reached has the verdict `not run`."""
    count = sum(max(1, len(test.parts)) for test in tests)
    unprotected = tuple(index for index, test in enumerate(tests) if not test.protected)
    try:
        transcript = read_transcript(ending.channel, count)
        steps = iter(transcript.steps[1:])
        judged = [_judge(test, steps) for test in tests]
    except Forged as error:
        nothing: list[Verdict] = ["not run"] * len(tests)
        result = _broken(ending, error)
        return replace(result, verdicts=tuple(nothing), unprotected=unprotected)
    ended = _finished(ending, transcript)
    if ended is None:
        why = next((f"assert {i}: {why}" for i, (_, why) in enumerate(judged) if why), "")
        status: Status = "failed" if why else "passed"
        if why and any(step.memory for step in transcript.steps):
            status = "memory"
        ended = _result(ending, status, why)
    return replace(ended, verdicts=tuple(v for v, _ in judged), unprotected=unprotected)


def _judge(test: Assert, steps: Iterator[Step]) -> tuple[Verdict, str]:
    """The verdict on one test and why it does not hold; takes its steps. Raises Forged."""
    taken = [next(steps, None) for _ in range(max(1, len(test.parts)))]
    for index, step in enumerate(taken):
        if step is None:
            return "not run", "not run"
        if step.kind == "raised":
            return ("failed" if _is_assertion(step, test) else "error"), step.error
        if (step.kind == "held") is test.protected:
            raise Forged("a value where none was asked for, or none where one was")
        if test.protected:
            try:
                held, why = decide(test.parts[index].judge, step.payload)
            except Refused as error:
                return "error", str(error)
            if not held:
                return "failed", why
    return "passed", ""


def _is_assertion(step: Step, test: Assert) -> bool:
    return not test.protected and "AssertionError" in step.error


def _finished(ending: Ending, transcript: Transcript) -> SandboxResult | None:
    """The result of a program that did not come to its end, None for one that did."""
    if ending.overflow:
        return _result(ending, "killed", f"too much {ending.overflow}")
    if ending.why == "timeout":
        return _result(ending, "timeout", "the time limit")
    if ending.why == "disk":
        return _result(ending, "killed", "too many or too large files")
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
