"""Cooperative coding (MAGRPO): HumanEval-style problems for a helper agent and a main agent."""

import ast
import builtins
import doctest
import keyword
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from teamtune.envs.answers import code_of, parse
from teamtune.envs.coop_code.cooperation import ALTERATIONS, adds_work
from teamtune.envs.coop_code.syntax import (
    HELPER,
    given_of,
    join,
    names_bound,
    names_read,
    preamble_of,
    returns_value,
    split_program,
)
from teamtune.envs.prompts import folder_of
from teamtune.envs.team_work import SOLO, TeamState, TeamWork, Verdict, Workflow
from teamtune.ranges import PositiveInt
from teamtune.sandbox import Sandbox, SandboxResult, asserts_of_check
from teamtune.sandbox.syntax_tree import parse_tree
from teamtune.tasks import Task

Feedback = Literal["plain", "passed", "signals", "details"]

MAXIMA: Mapping[str, float] = {
    "helper": 0.4,
    "entry_point": 0.6,
    "syntax": 0.5,
    "tests": 1.0,
    "calls_helper": 0.5,
    "adds_work": 1.0,
}
"""The levels of the joint reward and what each is worth in arXiv 2508.04652; 4.0 in all."""


class CoopCode(TeamWork):
    """A function in two parts: one agent writes `aux`, the other the entry point that may call it.

    A task has `prompt`, `entry_point` and `test` (a module with `check(candidate)`), as in
    HumanEval. It is solved where every assert of `check` holds. Between turns agents hear about the
    examples in the prompt's docstring, never about `test`. Programs run in a sandbox.
    """

    shares = {
        "structure": ("helper", "entry_point"),
        "test_pass_ratio": ("tests",),
        "cooperation": ("calls_helper", "adds_work"),
    }

    def __init__(
        self,
        workflow: Workflow = "parallel",
        turns: PositiveInt = 1,
        feedback: Feedback = "details",
        prompts: str = "chat",
        sandbox: Sandbox | None = None,
    ):
        """
        Args:
            workflow: `parallel` (both at once, unseen), `single` (one agent writes both parts),
                `sequential` (the main agent sees the helper) or `discussion` (both at once, then
                each revises, having seen the other's).
            turns: Joint answers per episode; from the second on agents see feedback on the last.
            feedback: What they see of it: `plain` (that it can be better), `passed` (whether all
                examples hold), `signals` (each level, yes or no) or `details` (with the reasons).
                Examples are those of the prompt's docstring in doctest's form, which 76 of
                HumanEval's 164 problems have; for the others only structure is told.
            prompts: `chat`, or a folder with one Jinja template per agent.
            sandbox: Where programs run; null takes the default limits.
        """
        self.feedback = feedback
        self.sandbox = sandbox or Sandbox()
        folder = folder_of(Path(__file__).parent / "prompts", prompts)
        super().__init__(("helper", "main"), workflow, folder, MAXIMA, turns)

    def reset(self, task: Task) -> TeamState:
        """The start of a task. Raises ValueError for a missing field or a `test` without check."""
        for name in ("prompt", "entry_point", "test"):
            if not isinstance(task.data.get(name), str) or not task.data[name].strip():
                raise ValueError(f"task {task.id}: {name!r} must be a text that is not empty")
        name = task.data["entry_point"]
        if not name.isidentifier() or keyword.iskeyword(name) or name == HELPER:
            raise ValueError(
                f"task {task.id}: 'entry_point' must be a function's name other than {HELPER}"
            )
        _asserts(task.data["test"], name)
        return super().reset(task)

    async def joint_reward(self, task: Task, helper: str, main: str) -> dict[str, float]:
        """What each level gives to a pair of answers, by name, and their sum as `total`, 0 to 4.

        It is both the reward and the metric. Without an entry point that returns something, or
        where the two do not parse together, the levels after that are 0. The helper is used where
        a test that passes would find a wrong value if it returned another one of the same kind;
        without a passed test it is not.

        Args:
            task: The problem.
            helper: The helper agent's answer, with or without a fence.
            main: The main agent's.

        Raises:
            ValueError: The task's `test` has no check, or no assert that could fail.
        """
        return (await self._score(task, helper, main))[0]

    def check(self) -> None:
        _ = self.sandbox.protection  # which has to hold

    async def judge(self, task: Task, answers: Mapping[str, str], last: bool) -> Verdict:
        levels, result = await self._score(task, answers["helper"], answers["main"])
        solved = result is not None and result.passed == result.total
        feedback = {} if last else await self._tell(task, answers, levels)
        return Verdict(levels, solved, feedback)

    def split(self, text: str) -> dict[str, str]:
        """The helper, where the program defines one, and the rest of it."""
        return dict(zip(self.roles, split_program(text)))

    def is_malformed(self, agent: str, text: str) -> bool:
        """Whether an answer has no program in it."""
        return not code_of(text)

    def sample_actions(self, state: TeamState, agent: str) -> list[str]:
        helper = f"def {HELPER}(*values):\n    return values"
        main = f"def {state.task.data['entry_point']}(*values):\n    return {HELPER}(*values)"
        given = {"helper": helper, "main": main, SOLO: f"{helper}\n\n\n{main}"}[agent]
        return [f"```python\n{given}\n```", "I do not know.", "```python\ndef f(:\n```"]

    async def _score(
        self, task: Task, helper: str, main: str
    ) -> tuple[dict[str, float], SandboxResult | None]:
        name = task.data["entry_point"]
        helper, main = code_of(helper, HELPER), code_of(main, name)
        asserts = _asserts(task.data["test"], name)
        program = _program(task, helper, main)
        earned = dict.fromkeys(MAXIMA, 0.0)
        result = None
        earned["helper"] = float(returns_value(helper, HELPER))
        written = self._written(helper, main)
        earned["entry_point"] = float(returns_value(written, name))
        if earned["entry_point"]:
            earned["syntax"] = float(parse(program) is not None)
        if earned["syntax"]:
            result = await self.sandbox.run_tests(program, asserts)
            earned["tests"] = result.passed / result.total
        if result is not None and earned["helper"]:
            needed = await self._needs_helper(task, helper, main, asserts, result)
            earned["calls_helper"] = float(needed)
        if earned["calls_helper"]:
            earned["adds_work"] = float(adds_work(written, name))
        levels = {level: MAXIMA[level] * share for level, share in earned.items()}
        return levels | {"total": sum(levels.values())}, result

    def _written(self, helper: str, main: str) -> str:
        """What the writer of the entry point wrote: all of it where one agent writes for both."""
        return join([helper, main]) if self.workflow == "single" else main

    async def _needs_helper(
        self, task: Task, helper: str, main: str, asserts: list[str], result: SandboxResult
    ) -> bool:
        """Whether any assert that held in `result` is wrong where the helper returns otherwise."""
        held = [a for a, verdict in zip(asserts, result.verdicts) if verdict == "passed"]
        if not held or HELPER not in names_read(main) | names_read(helper):
            return False
        for altered in ALTERATIONS:
            program = _program(task, f"{helper}\n\n\n{altered}", main)
            again = await self.sandbox.run_tests(program, held)
            if "failed" in again.verdicts:  # raising tells nothing: a touch can break a program
                return True
        return False

    async def _tell(
        self, task: Task, answers: Mapping[str, str], levels: Mapping[str, float]
    ) -> dict[str, str]:
        """What every agent hears about a joint answer; of tests only the prompt's examples."""
        if self.feedback == "plain":
            return dict.fromkeys(self.agents, "It can still be better.")
        examples = examples_of(task.data["prompt"])
        names = (HELPER, task.data["entry_point"])
        helper, main = (code_of(answers[role], name) for role, name in zip(self.roles, names))
        program, result = _program(task, helper, main), None
        if examples and levels["syntax"]:
            result = await self.sandbox.run_tests(program, examples)
        passed = result is not None and result.status == "passed"
        if self.feedback == "passed":
            said = f"All examples hold: {_yes(passed)}."
            return dict.fromkeys(self.agents, said if examples else "There are no examples.")
        lines = [
            f"{HELPER} is defined and returns something: {_yes(levels['helper'])}",
            f"{task.data['entry_point']} is defined and returns something: "
            f"{_yes(levels['entry_point'])}",
            f"The two parts form a program: {_yes(parse(program))}",
        ]
        if examples:
            lines.append(f"All examples hold: {_yes(passed)}")
        if result is not None and result.passed:
            needed = await self._needs_helper(task, helper, main, examples, result)
            lines.append(f"They depend on what {HELPER} returns: {_yes(needed)}")
        working = adds_work(self._written(helper, main), task.data["entry_point"])
        lines.append(f"{task.data['entry_point']} adds work of its own: {_yes(working)}")
        if self.feedback == "details" and result is not None and not passed:
            failed = [e for e, v in zip(examples, result.verdicts) if v != "passed"]
            lines += [f"Does not hold: {example}" for example in failed[:3]]
            lines += [f"Error: {_kind(result)}"] if result.error else []
        return dict.fromkeys(self.agents, "\n".join(lines))


def examples_of(prompt: str) -> list[str]:
    """The examples of a prompt's docstrings (`>>> f(1)` and what it gives) as asserts."""
    functions = [n for n in ast.walk(parse(prompt) or ast.Module([], [])) if _documented(n)]
    return [example for function in functions for example in _asserts_of(function)]


def _asserts_of(function: Any) -> list[str]:
    """The examples of one docstring that stand alone: none that needs what one before it set."""
    asserts, set_before = [], set[str]()
    for example in _examples(function):
        source, want = example.source.strip(), example.want.strip()
        try:
            tried = ast.unparse(parse_tree(source, "eval"))
        except (ValueError, SyntaxError, RecursionError, MemoryError):  # a statement
            set_before |= names_bound(source)
            continue
        if names_read(source) & set_before:
            continue
        if _is_literal(want):
            asserts.append(f"assert ({tried}) == {want}")
        elif not want and _compares(source):
            asserts.append(f"assert {tried}")
    return asserts


def _is_literal(source: str) -> bool:
    try:
        ast.literal_eval(parse_tree(source, "eval"))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return False
    return True


def _compares(source: str) -> bool:
    """Whether it is an example in one line: `f(1) == 2`."""
    match parse_tree(source, "eval").body:
        case ast.Compare(ast.Call(), [ast.Eq()], [right]):
            return _is_literal(ast.unparse(right))
    return False


def _documented(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None


def _examples(function: Any) -> list[doctest.Example]:
    """Those that are proper; one that is not takes none of the others along."""
    found = []
    for part in re.split(r"^(?=[ \t]*>>>)", ast.get_docstring(function) or "", flags=re.M):
        try:
            found += doctest.DocTestParser().get_examples(part)
        except ValueError:
            continue
    return found


def _program(task: Task, helper: str, main: str) -> str:
    """What runs: functions that the problem gives come again at the end, for tests need them."""
    prompt, name = task.data["prompt"], task.data["entry_point"]
    return join((_preamble(prompt, name), helper, main, _given(prompt, name)))


def _kind(result: SandboxResult) -> str:
    """What went wrong, without a word that the program may choose: agents could talk by it."""
    name = re.sub(r"^(assert \d+: )?(line \d+: )?", "", result.error).partition(":")[0]
    known = getattr(builtins, name, None)
    is_error = isinstance(known, type) and issubclass(known, BaseException)
    return name if is_error else result.status


def _yes(value: Any) -> str:
    return "yes" if value else "no"


_asserts = lru_cache(maxsize=4096)(asserts_of_check)
_preamble = lru_cache(maxsize=4096)(preamble_of)
_given = lru_cache(maxsize=4096)(given_of)
