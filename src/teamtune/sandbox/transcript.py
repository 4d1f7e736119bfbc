"""What arrived on the private channel: lines that untrusted code may have written.

Exactly one line per step, in order. Anything else means that the program wrote into the channel,
and then nothing in it counts: one value per expression is one guess at what is expected.
"""

import json
import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["loaded", "value", "raised"]
_RAISED = re.compile(rb"raised (memory|error) (.*)")


class Forged(ValueError):
    """The channel holds something that our side of the child never writes."""


@dataclass(frozen=True, slots=True)
class Step:
    """The outcome of loading the program, or of one probe."""

    kind: Kind
    payload: bytes = b""
    """The encoded value."""
    error: str = ""
    memory: bool = False
    """Whether it raised MemoryError."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """The steps that were finished: first the program itself, then its probes."""

    steps: tuple[Step, ...]
    done: bool
    """Whether the child said that it had come to the end."""


def read_transcript(data: bytes, probes: int) -> Transcript:
    """Parses what a child sent. An unfinished last line (it was killed) is left out. Raises Forged.

    Args:
        data: Everything that was read.
        probes: How many expressions the child was given.
    """
    lines = data.split(b"\n", probes + 3)[:-1]  # one more than an honest child has to say
    done = bool(lines) and lines[-1] == b"done"
    steps = [_step(line) for line in (lines[:-1] if done else lines)]
    if not steps:
        if done:
            raise Forged("done before the program was loaded")
        return Transcript((), False)
    if steps[0].kind == "value" or any(step.kind == "loaded" for step in steps[1:]):
        raise Forged("steps out of order")
    loaded = steps[0].kind == "loaded"
    most = probes + 1 if loaded else 1
    if len(steps) > most or (done and len(steps) != most) or (done and not loaded):
        raise Forged("more or fewer steps than there were to do")
    return Transcript(tuple(steps), done)


def _step(line: bytes) -> Step:
    if line == b"loaded":
        return Step("loaded")
    if line.startswith(b"value "):
        return Step("value", line[6:])
    if match := _RAISED.fullmatch(line):
        return Step("raised", error=_clean(match[2]), memory=match[1] == b"memory")
    raise Forged("not one of our lines")


def _clean(text: bytes) -> str:
    """One printable line out of a JSON string."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise Forged("no text") from None
    if not isinstance(found, str):
        raise Forged("no text")
    words = found[:400].encode("utf-8", "replace").decode()
    return " ".join("".join(c if c.isprintable() else " " for c in words).split())
