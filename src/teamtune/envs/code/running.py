"""Programs run on tests.

What is expected never enters a program's process: what it printed is compared here.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from teamtune.envs.code.problem import Problem, Test
from teamtune.sandbox import Sandbox, SandboxResult

TOLERANCE = 1e-6
"""Between numbers that are not both whole, absolute or relative."""
_MAIN = """\
given = {{"__name__": "program"}}
for module in ("typing", "collections", "functools", "itertools", "heapq", "bisect"):
    exec(f"from {{module}} import *", given)
exec("import bisect, collections, functools, heapq, itertools, math, random, re, string", given)
exec(compile({program!r}, "program", "exec"), given)
import json, sys
arguments = [json.loads(line) for line in sys.stdin.read().splitlines() if line.strip()]
found = eval({call!r}, given)(*arguments)
print()
print(json.dumps(found))
"""
"""Calls a function on the arguments in its input, with the imports that LeetCode's judge makes."""


@dataclass(frozen=True, slots=True)
class Run:
    """What a program did with one test."""

    passed: bool
    ended: bool
    """Whether it came to its end."""
    gave: str
    """What it printed or returned, or why it did not; the program's own words."""
    slow: bool = False
    """Whether it hit the time limit."""


async def run(sandbox: Sandbox, problem: Problem, program: str, test: Test) -> Run:
    """Runs `program` on one test."""
    script = program
    if problem.function:
        call = problem.function.replace("Solution.", "Solution().")
        script = _MAIN.format(program=program, call=call)
    result = await sandbox.run(script, test.input)
    if result.status != "passed":
        return Run(False, False, _why(result), result.status == "timeout")
    printed = result.stdout.strip()
    if not problem.function:
        return Run(any(same_text(printed, right) for right in test.outputs), True, printed)
    returned = printed.rpartition("\n")[2]
    return Run(any(same_json(returned, right) for right in test.outputs), True, returned)


async def run_all(
    sandbox: Sandbox, problem: Problem, program: str, tests: Sequence[Test]
) -> list[Run]:
    """Runs `program` on tests in order, up to the first on which it is too slow."""
    runs = []
    for test in tests:
        runs.append(await run(sandbox, problem, program, test))
        if runs[-1].slow:
            break
    return runs


def same_text(printed: str, right: str) -> bool:
    """Whether two outputs are the same, up to white space and the rounding of numbers."""
    words, expected = printed.split(), right.split()
    return len(words) == len(expected) and all(map(_same_word, words, expected))


def same_json(returned: str, right: str) -> bool:
    """Whether two JSON texts have one value, up to the rounding of numbers."""
    try:
        return _same_value(json.loads(returned), json.loads(right))
    except (ValueError, RecursionError):
        return False


def _same_word(word: str, expected: str) -> bool:
    if word == expected:
        return True
    if not set(expected) & set(".eE"):  # whole numbers are exact, and so are words
        return False
    try:
        return _close(float(word), float(expected))
    except ValueError:
        return False


def _same_value(value: Any, expected: Any) -> bool:
    if isinstance(value, list) and isinstance(expected, list):
        return len(value) == len(expected) and all(map(_same_value, value, expected))
    if isinstance(value, dict) and isinstance(expected, dict):
        return value.keys() == expected.keys() and all(
            _same_value(value[key], expected[key]) for key in expected
        )
    if isinstance(value, float) or isinstance(expected, float):
        numbers = isinstance(value, int | float) and isinstance(expected, int | float)
        return numbers and _close(value, expected)
    return type(value) is type(expected) and bool(value == expected)


def _close(value: float, expected: float) -> bool:
    return math.isclose(value, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def _why(result: SandboxResult) -> str:
    reason = {"timeout": "It did not end in time.", "memory": "It took too much memory."}
    return reason.get(result.status) or f"Error: {result.error}"
