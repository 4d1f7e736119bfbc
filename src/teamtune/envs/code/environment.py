"""Code (Stronger-MAS): a coder writes a program, at the same time a tester writes a test of it.

From the second turn on both see what the program gave on the test where that is not what the test
expects; of the golden tests, which make the reward, nobody sees anything.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from teamtune.envs.answers import code_of, labelled_blocks, parse
from teamtune.envs.code.problem import Problem, Test, json_of, problem_of_task
from teamtune.envs.code.running import Run, run, run_all
from teamtune.envs.prompts import folder_of
from teamtune.envs.revision import AnswerAndRevise, Marks, RevisionState
from teamtune.errors import ConfigError
from teamtune.ranges import PositiveInt
from teamtune.sandbox import Sandbox
from teamtune.tasks import Task

CODER: Final = "coder"
TESTER: Final = "tester"
Role = Literal["coder", "tester"]

COMPILES, RUNS, PASSES = 0.1, 0.1, 0.8
"""Of the coder's local reward: a program that parses, comes to its end on a first input, and passes
golden tests, by their share."""
WELL_FORMED, HOLDS = 0.2, 0.8
"""Of the tester's: a test with an input and an output, which the reference program passes."""
MAX_SHOWN = 1000
"""Characters of an input or an output that agents are shown."""


class Code(AnswerAndRevise):
    """Programs for problems with hidden tests, solved where all of those pass.

    Team reward: the share of the golden tests that the program passes. The coder's own: 0.1 it
    parses, 0.1 it comes to its end on the first golden input, 0.8 the share; all three are changes
    from turn to turn, see `AnswerAndRevise`. The tester's own, which is shaping, for a true test
    makes no program right: 0.2 the test is well-formed, 0.8 the reference program passes it; 0
    where the task has no reference program. The agents agree where the program passes the test.
    After a test on which a program is too slow no further one is run; they count as not passed.
    """

    def __init__(
        self,
        roles: tuple[Role, ...] = (CODER, TESTER),
        turns: PositiveInt = 4,
        prompts: str = "chat",
        sandbox: Sandbox | None = None,
    ):
        """
        Args:
            roles: Who takes part: both, or the coder alone, the single agent to compare with.
            turns: Most turns of an episode, T. A coder alone sees its own program again.
            prompts: `chat`, or a folder with one Jinja template per role.
            sandbox: Where programs run; null takes the default limits, 5 s for each test.

        Raises:
            ConfigError: No coder, without whom there is no program.
        """
        if CODER not in roles:
            raise ConfigError(f"roles: got {list(roles)}, allowed: [coder, tester] or [coder]")
        super().__init__(roles, turns, folder_of(Path(__file__).parent / "prompts", prompts))
        self.sandbox = sandbox or Sandbox()

    def check(self) -> None:
        _ = self.sandbox.protection  # which has to hold

    def reset(self, task: Task) -> RevisionState:
        """The start of a task, in any schema of `problem_of`. Raises ValueError."""
        problem_of_task(task)
        return super().reset(task)

    def describe(self, task: Task) -> Mapping[str, Any]:
        problem = problem_of_task(task)
        return {
            "question": problem.question,
            "function": problem.function.rpartition(".")[2],
            "starter": problem.starter,
        }

    async def judge(self, task: Task, answers: Mapping[str, str]) -> Marks:
        problem = problem_of_task(task)
        program = code_of(answers[CODER], problem.function.rpartition(".")[2])
        share, coder = await self._marks_of_coder(problem, program)
        told: dict[str, Any] = {"program": program}
        malformed, agreed, shaping = [] if program else [CODER], False, {}
        if TESTER in self.agents:
            test = read_test(answers[TESTER], problem)
            found = await run(self.sandbox, problem, program, test) if program and test else None
            agreed = found is not None and found.passed
            malformed += [] if test else [TESTER]
            shaping[TESTER] = await self._marks_of_tester(problem, test)
            told |= {"test": _shown(test), "gave": _cut(found.gave) if found else None}
        return Marks(share, {CODER: coder}, shaping, tuple(malformed), agreed, told)

    async def _marks_of_coder(self, problem: Problem, program: str) -> tuple[float, float]:
        """The share of golden tests that pass, and the coder's own reward."""
        if parse(program) is None or not program:
            return 0.0, 0.0
        runs: list[Run] = await run_all(self.sandbox, problem, program, problem.tests)
        share = sum(one.passed for one in runs) / len(problem.tests)
        return share, COMPILES + RUNS * runs[0].ended + PASSES * share

    async def _marks_of_tester(self, problem: Problem, test: Test | None) -> float:
        if test is None or not problem.reference:
            return 0.0
        found = await run(self.sandbox, problem, problem.reference, test)
        return WELL_FORMED + HOLDS * found.passed

    def sample_actions(self, state: RevisionState, agent: str) -> list[str]:
        problem = problem_of_task(state.task)
        golden = problem.tests[0]
        name = problem.function.rpartition(".")[2]
        stub = f"def {name}(*given):\n    return None" if name else "print(0)"
        if agent == CODER:
            return [
                f"```python\n{code}\n```" for code in (problem.reference or stub, stub, "x = (")
            ]
        tests = [(golden.input, golden.outputs[0]), (golden.input, "0"), (golden.input, "1")]
        return [f"```input\n{i}\n```\n```output\n{o}\n```" for i, o in tests]


def read_test(answer: str, problem: Problem) -> Test | None:
    """The test in an answer: a block labelled `input` and one labelled `output`; None without.

    Where a function is tested both hold values, in JSON or as Python has them: the arguments one a
    line, and what is returned.
    """
    blocks = labelled_blocks(answer)
    given, right = blocks.get("input"), blocks.get("output")
    if given is None or right is None or not right.strip():
        return None
    if not problem.function:
        return Test(given + "\n", (right,))
    try:
        lines = [json_of(line) for line in given.splitlines() if line.strip()]
        return Test("\n".join(lines), (json_of(right),))
    except ValueError:
        return None


def _shown(test: Test | None) -> dict[str, str] | None:
    if test is None:
        return None
    return {"input": _cut(test.input.strip()), "output": _cut(test.outputs[0].strip())}


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + " ... (cut)"
