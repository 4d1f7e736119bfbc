"""Wrong groups mix what differs in more than the answer; outcome rewards pay for the goal alone."""

import asyncio
from dataclasses import replace

import pytest
from experiments.ablations import OutcomePlanPath, PooledATGRPO

from factories import candidate, group, rollouts_of
from teamtune.algorithms import ATGRPO
from teamtune.envs import Reward
from teamtune.tasks import Task

HALF = 0.8660254037844386
"""Of rewards 0, 0, 1, 1 the mean is 1/2 and the deviation sqrt(4 * 0.25 / 3): 0.5 / 0.57735."""


def rewarded(task: str, agent: str, turn: int, *rewards: float):
    made = group([5, 6], [candidate([7], 0.0, reward=r) for r in rewards], task, agent)
    made.key = replace(made.key, turn=turn)
    return made


def advantages(algorithm, groups):
    algorithm.assign_credit(rollouts_of(groups))
    return [[c.advantage for c in g.candidates] for g in groups]


@pytest.mark.parametrize(
    ("pool", "other"),
    [
        ("tasks", ("b", "planner", 0)),
        ("turns", ("a", "planner", 1)),
        ("agents", ("a", "proposer", 0)),
    ],
)
def test_a_pool_compares_over_one_thing_and_keeps_the_others_apart(pool, other):
    places = [("b", "planner", 0), ("a", "planner", 1), ("a", "proposer", 0)]
    groups = [rewarded("a", "planner", 0, 0.0, 0.0), rewarded(*other, 1.0, 1.0)]
    groups += [rewarded(*place, 5.0, 5.0) for place in places if place != other]
    own, pooled, *apart = advantages(PooledATGRPO(pool=pool), groups)
    assert own == pytest.approx([-HALF, -HALF]) and pooled == pytest.approx([HALF, HALF])
    assert apart == [[0.0, 0.0]] * 2
    assert advantages(ATGRPO(), groups) == [[0.0, 0.0]] * 4


def test_only_reaching_the_goal_is_paid():
    env = OutcomePlanPath(size=3, first_role="proposer")
    start = env.reset(Task("t", {"grid": ["..."] * 3, "start": [0, 0], "goal": [0, 2]}))

    def step(state, agent, text):
        return asyncio.run(env.transition(state, {agent: text}))

    near, there = (step(start, "proposer", text) for text in ("R", "RR"))
    assert near.rewards == {"proposer": Reward(shaping=0.0)}
    assert there.rewards == {"proposer": Reward(shaping=1.0)}
    nothing = step(start, "proposer", "?")
    assert nothing.malformed == ("proposer",) and nothing.rewards == {"proposer": Reward()}
    near, there = (step(there.state, "planner", text) for text in ("R", "RR"))
    assert near.rewards == {"planner": Reward()} and not near.success
    assert there.rewards == {"planner": Reward(team=1.0)} and there.success
