"""An agent's answer to a question, written out or printed by its program, and its form's worth."""

from dataclasses import dataclass

from teamtune.envs.answers import code_of, parse
from teamtune.sandbox import Sandbox

FORMAT, WORTH = 0.2, 0.8
"""Of a local reward: an answer that can be read, and what it is worth to who judges it."""
COMPILES, RUNS = 0.1, 0.1
"""Of a tool's, in place of the first: a program that parses and comes to its end."""


@dataclass(frozen=True, slots=True)
class Given:
    """An answer that was found, or none."""

    answer: str | None
    form: float
    """What its form alone is worth."""
    trouble: str = ""
    """Why there is no answer, for the agents."""


async def printed(sandbox: Sandbox, text: str) -> Given:
    """All that the program in a text prints; None where that is nothing."""
    program = code_of(text)
    if not program or parse(program) is None:
        return Given(None, 0.0, "There was no program.")
    result = await sandbox.run(program)
    if result.status != "passed":
        return Given(None, COMPILES, f"The program failed: {result.error}")
    found = result.stdout.strip()
    return Given(found or None, COMPILES + RUNS, "The program printed nothing.")
