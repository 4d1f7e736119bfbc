"""No behaviour that fails is worth as much as one that solves, to no algorithm.

Every sequence of sampled and malformed answers is played, turn by turn, on small instances. MAGRPO
adds up joint rewards (team + local, a mean over those who act), GRPO and GiGPO the changes of Phi.
"""

import asyncio
import itertools
from typing import Any

import pytest

from teamtune.envs import Code, Math, PlanPath, ReasoningGym, Sokoban, Sudoku
from teamtune.envs.relay import Relay
from teamtune.tasks import Task


def remembering(env: Any) -> Any:
    """An environment that judges equal answers once: programs take their time."""
    judge, known = env.judge, {}

    async def judged(task, answers):
        key = (task.id, *answers.items())
        if key not in known:
            known[key] = await judge(task, answers)
        return known[key]

    env.judge = judged
    return env


CASES = {
    "plan-path alone": (PlanPath(size=3, max_moves=2, first_role="none"), 3),
    "plan-path proposed": (PlanPath(size=3, max_moves=2, first_role="proposer"), 4),
    "sokoban alone": (Sokoban(max_moves=2, first_role="none"), 3),
    "sokoban proposed": (Sokoban(max_moves=2, first_role="proposer"), 4),
    "sudoku alone": (Sudoku(size=4, empty=3, first_role="none"), 2),
    "sudoku proposed": (Sudoku(size=4, empty=3, first_role="proposer"), 3),
    "relay": (Relay(size=4, max_distance=3, max_moves=2), 4),
    "code": (remembering(Code(turns=3)), 3),
    "code alone": (remembering(Code(roles=("coder",), turns=3)), 3),
    "math": (remembering(Math(turns=3)), 3),
    "math by a tool alone": (remembering(Math(roles=("tool",), turns=3)), 3),
    "gym alone": (remembering(ReasoningGym("gcd", turns=3)), 3),
    "gym checked": (remembering(ReasoningGym("gcd", team="solver_checker", turns=3)), 3),
}
ROOM = Task("room", {"room": ["######", "#@.$x#", "#....#", "######"]})
TESTS = [{"input": str(n), "output": str(n // 4)} for n in (1, 2, 3, 4)]
"""Printing 0 passes all but one of them."""
QUARTER = {"question": "?", "tests": TESTS, "reference": "print(int(input()) // 4)"}
GIVEN = {
    "sokoban": [ROOM],
    "code": [Task("quarter", QUARTER)],
    "math": [Task("half", {"problem": "?", "answer": "0.5"})],
    "gym": [Task("gcd", {"dataset": "gcd", "question": "?", "answer": "171", "metadata": "{}"})],
}
"""Tasks of environments that do not make their own, or none that is small enough."""
ANSWERS = 5
"""How many different answers of an agent are tried in a state, a malformed one among them."""


def outcomes(env: Any, state: Any, steps: int, joint: float, progress: float) -> Any:
    """(solved, sum of joint rewards, sum of changes of Phi) of every behaviour."""
    acting = env.acting(state)
    if not steps or not acting:
        yield False, joint, progress
        return
    choices = [[*env.sample_actions(state, a)[: ANSWERS - 1], "?!"] for a in acting]
    for texts in itertools.product(*choices):
        step = asyncio.run(env.transition(state, dict(zip(acting, texts))))
        given = [r.team + r.local for r in step.rewards.values()]
        after = joint + sum(given) / len(given)
        change = progress + env.potential(step.state) - env.potential(state) + float(step.success)
        if step.done:
            yield step.success, after, change
        else:
            yield from outcomes(env, step.state, steps - 1, after, change)


@pytest.mark.parametrize("name", CASES)
def test_no_failure_is_worth_as_much_as_a_solution(name: str):
    env, steps = CASES[name]
    solved, failed = [], []
    tasks = GIVEN.get(name.split()[0]) or [env.task(seed) for seed in range(4)]
    for task in tasks:
        for success, *values in outcomes(env, env.reset(task), steps, 0.0, 0.0):
            (solved if success else failed).append(values)
        if solved:
            for worth in range(2):
                assert max(v[worth] for v in failed) < min(v[worth] for v in solved)
    assert solved and len(failed) > 10


@pytest.mark.parametrize("name", [name for name in CASES if "proposed" in name])
def test_proposing_and_stalling_earn_nothing(name: str):
    env, _ = CASES[name]
    state = env.reset(env.task(0))
    for text in (*env.sample_actions(state, "proposer")[:3], "?!"):
        step = asyncio.run(env.transition(state, {"proposer": text}))
        assert step.rewards["proposer"].team == step.rewards["proposer"].local == 0
        assert env.potential(step.state) == env.potential(state)
