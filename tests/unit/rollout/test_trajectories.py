"""Whole episodes side by side: one start, seeds of their own, and nothing between them."""

import asyncio
import random

import pytest

from games import POLICIES, Game, data, numbering, play, won
from teamtune.envs import PlanPath, Reward, Transition
from teamtune.inference import Sampling, ScriptedEngine
from teamtune.rollout import TrajectorySampler, collect
from teamtune.tasks import Task


def moves(prompt: str, seed: int) -> str:
    return " ".join(random.Random(f"{prompt}{seed}").choices("UDLR", k=2))


ENV = PlanPath(size=5, first_role="proposer", max_moves=3)
TASKS = [ENV.task(seed) for seed in range(4)]


def roll(tasks, sampler, seed=0, engine=None):
    team = dict.fromkeys(ENV.agents, "team")
    return collect(ENV, tasks, sampler, {"team": engine or ScriptedEngine(moves)}, team, seed)


def test_the_episodes_of_a_task_start_alike_and_have_keys_of_their_own():
    rollouts = roll(TASKS, TrajectorySampler(3, 2))
    assert [(r.task, r.episode) for r in rollouts] == [(t.id, k) for t in TASKS for k in range(3)]
    keys = [group.key for rollout in rollouts for group in rollout.groups]
    assert len(set(keys)) == len(keys)
    for task, own in zip(TASKS, (rollouts[i : i + 3] for i in range(0, 12, 3))):
        assert {r.first.state for r in own} == {ENV.reset(task)}
        assert len({r.first.groups[0].prompt_ids for r in own}) == 1
        assert len({str(data([r])[0]["turn"]) for r in own}) == 3  # drawn with unequal seeds
        assert all({g.key.node for g in r.groups} == {f"#{k}"} for k, r in enumerate(own))


def test_an_episode_depends_on_nothing_that_runs_beside_it():
    whole = data(roll(TASKS, TrajectorySampler(4, 2), seed=7))
    backwards = data(roll(TASKS[::-1], TrajectorySampler(4, 2), seed=7))
    assert [e for i in range(12, -1, -4) for e in backwards[i : i + 4]] == whole
    assert data(roll(TASKS[2:3], TrajectorySampler(4, 2), seed=7)) == whole[8:12]
    assert data(roll(TASKS[:1], TrajectorySampler(2, 2), seed=7)) == whole[:2]
    assert data(roll(TASKS, TrajectorySampler(4, 2), seed=8)) != whole


def test_an_episode_is_one_path_whose_outcome_is_that_of_its_answers():
    for rollout in roll(TASKS, TrajectorySampler(8, 3)):
        state = start = rollout.first.state
        success = False
        for turn in rollout.turns:
            (group,) = turn.groups
            (answer,) = group.candidates
            step = asyncio.run(ENV.transition(state, {group.key.agent: answer.text}))
            (joint,) = turn.joints
            change = ENV.potential(step.state) - ENV.potential(state) + step.success
            assert joint.progress == pytest.approx(change)
            assert answer.selected and joint.carried and joint.picks == (0,)
            state, success = step.state, step.success
        assert rollout.success == success
        expected = ENV.potential(state) - ENV.potential(start) + success
        assert rollout.return_ == pytest.approx(expected)
        assert rollout.return_ == pytest.approx(sum(t.joints[0].progress for t in rollout.turns))


class Listening(ScriptedEngine):
    """Remembers how it was asked."""

    def __init__(self):
        super().__init__(moves)
        self.asked = []

    async def generate(self, prompt_ids, n=1, sampling=None, seed=0):
        self.asked.append((n, sampling))
        return await super().generate(prompt_ids, n, sampling, seed)


@pytest.mark.parametrize(
    ("settings", "temperature"),
    [
        ({"num_candidates": 1}, 0.0),
        ({"num_candidates": 2}, 1.0),
        ({"num_candidates": 1, "sampling": Sampling(temperature=0.5)}, 0.5),
        ({"num_candidates": 2, "sampling": Sampling(temperature=0.5)}, 0.5),
    ],
)
def test_one_episode_is_greedy_and_several_are_sampled_unless_told_otherwise(settings, temperature):
    engine = Listening()
    roll(TASKS[:1], TrajectorySampler(**settings), engine=engine)
    assert {(n, sampling.temperature) for n, sampling in engine.asked} == {(1, temperature)}


def test_greedy_is_greedy_whatever_the_engines_sampling_cuts_off():
    engine = Listening()
    engine.sampling = Sampling(max_tokens=9, top_p=0.5, top_k=3)
    roll(TASKS[:1], TrajectorySampler(), engine=engine)
    assert {sampling for _, sampling in engine.asked} == {Sampling(0.0, 9, 1.0, 0)}


def test_an_episode_that_breaks_off_leaves_the_others_alone():
    def judge(said):
        if said[-1][0] == "1":
            raise RuntimeError("it broke")
        return won(said, 1.0)

    engines = {"a": numbering(lambda prompt, k: "x"), "b": numbering()}
    drawn = iter("010")
    engines["a"].fn = lambda prompt, seed: next(drawn) if prompt == "left/" else "0"
    game = Game(judge, turns=2)
    rollouts = collect(game, [Task("t")], TrajectorySampler(3, 2), engines, POLICIES)
    broken = [r for r in rollouts if r.error]
    assert len(broken) == 1 and [len(r.turns) for r in rollouts if not r.error] == [2, 2]
    (rollout,) = broken
    assert rollout.error == rollout.first.error == "no candidate could be carried on"
    assert (rollout.return_, rollout.success, rollout.levels) == (0.0, False, {})
    assert all(c.reason.startswith("RuntimeError: it broke (") for c in rollout.candidates)


def test_an_episode_breaks_off_where_one_of_several_agents_has_no_reward():
    def judge(said):
        return Transition(said, {"left": Reward(float("nan")), "right": Reward(1.0)})

    rollout = play(Game(judge), TrajectorySampler())
    assert rollout.error == "no candidate could be carried on"
    assert [c.reward for c in rollout.candidates] == [None, 1.0]


def test_one_event_loop_serves_all_collections():
    loops = []

    class Loop(ScriptedEngine):
        async def generate(self, prompt_ids, n=1, sampling=None, seed=0):
            loops.append(asyncio.get_running_loop())
            return await super().generate(prompt_ids, n, sampling, seed)

    team = dict.fromkeys(ENV.agents, "team")
    with asyncio.Runner() as runner:
        parts = [
            collect(ENV, TASKS, TrajectorySampler(2, 1), {"team": Loop(moves)}, team, 0, runner)
            for _ in range(2)
        ]
    assert data(parts[0]) == data(parts[1]) == data(roll(TASKS, TrajectorySampler(2, 1)))
    assert len({id(loop) for loop in loops}) == 1 and loops[0].is_closed()
