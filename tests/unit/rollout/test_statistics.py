"""Means over episodes: a failed one counts, and how episodes are spread over ranks does not."""

import pytest
from teamtune.rollout.statistics import merged, summarize

from games import AGENTS, POLICIES, Game, numbering
from teamtune.envs import Outcome, Reward, Transition
from teamtune.experience import Rollout
from teamtune.inference import Completion, ScriptedEngine
from teamtune.rollout import JointSampler, TrajectorySampler, TreeSampler, collect
from teamtune.tasks import Task

PLAYED = Rollout("a", success=True, return_=2.0, levels={"style": 0.5, "total": 2.0})
BROKEN = Rollout("b", error="every candidate failed")
LEVELS = ("style", "total")


class NoRoom(ScriptedEngine):
    """As an engine answers a prompt that leaves no room in its context."""

    async def generate(self, prompt_ids, n=1, sampling=None, seed=0):
        return [Completion((), (), "", "too_long", self.version)] * n


def test_an_episode_that_was_broken_off_earned_nothing_at_any_level():
    means = merged([summarize([PLAYED, BROKEN], "val", LEVELS)])
    assert means["val/level_style"] == 0.25 and means["val/level_total"] == 1.0
    assert means["val/broken_off"] == means["val/success"] == 0.5


def test_where_rewards_have_no_levels_none_are_told():
    assert not any("level" in name for name in summarize([BROKEN], "val"))


def test_how_episodes_are_spread_over_ranks_does_not_matter():
    episodes = [BROKEN, PLAYED, Rollout("c", levels={"style": 0.1, "total": 0.6})]
    whole = merged([summarize(episodes, "r", LEVELS)])
    for cut in (1, 2):
        parts = [summarize(part, "r", LEVELS) for part in (episodes[:cut], episodes[cut:])]
        assert merged(parts) == pytest.approx(whole)


def test_a_task_that_is_too_long_is_counted_and_its_answers_are_no_failures():
    engines = {"a": ScriptedEngine(lambda prompt, seed: "1"), "b": NoRoom(lambda *_: "")}
    team = {"left": "a", "right": "b"}
    game = Game(lambda _: 1.0)
    (rollout,) = collect(game, [Task("d")], JointSampler(2, 1), engines, team)
    groups = rollout.groups
    assert [c.stop_reason for g in groups for c in g.candidates] == ["stop"] * 2 + ["too_long"] * 2
    assert all(c.reward is None for g in groups for c in g.candidates)
    means = merged([summarize([rollout, PLAYED], "r")])
    assert means["r/too_long"] == 0.5 and means["r/failed"] == 0


@pytest.mark.parametrize(
    "sampler", [JointSampler(4), JointSampler(4, pairing="cross"), TreeSampler(4, 1)]
)
def test_answers_that_hold_nothing_usable_are_counted_by_agent(sampler):
    def judge(said):
        bad = tuple(agent for agent, text in zip(AGENTS, said[-1]) if text == "3")
        return Transition(said, {agent: Reward() for agent in AGENTS}, malformed=bad)

    engines = {"a": numbering(), "b": numbering(lambda prompt, k: "3" if k else "0")}
    (rollout,) = collect(Game(judge), [Task("t")], sampler, engines, POLICIES)
    means = merged([summarize([rollout], "r")])
    assert (means["r/left/malformed"], means["r/right/malformed"]) == (0.25, 0.75)
    told = rollout.as_dict()["groups"][0]["candidates"]
    assert [c["malformed"] for c in told] == [False, False, False, True]


def test_a_prompt_without_room_excuses_nothing_that_failed_before_it():
    class Narrow(ScriptedEngine):
        async def generate(self, prompt_ids, n=1, sampling=None, seed=0):
            if "left/1" in self.chat.decode(prompt_ids):
                return await NoRoom.generate(self, prompt_ids, n)
            return await super().generate(prompt_ids, n, sampling, seed)

    def judge(said):
        if said[-1] == ("0", "0"):
            raise RuntimeError("it broke")
        return 1.0

    engines = {"a": Narrow(numbering().fn), "b": numbering()}
    game = Game(judge, turns=2)
    (rollout,) = collect(game, [Task("t")], JointSampler(2, 2), engines, POLICIES)
    means = merged([summarize([rollout], "r")])
    failed = [c for g in rollout.groups for c in g.candidates if c.reward is None]
    assert len(rollout.groups) == 4 and len(failed) == 2 + 4
    assert means["r/too_long"] == 1 and means["r/failed"] == 2 / 8


def test_steps_that_are_not_judged_are_in_no_mean_of_rewards():
    def judge(said):
        rewards = {agent: Reward(team=3.0 * (len(said) == 2)) for agent in AGENTS}
        return Transition(said, rewards, outcome=Outcome(judged=len(said) == 2))

    engines = {"a": numbering(), "b": numbering()}
    for sampler in (JointSampler(1, 2), TrajectorySampler(2)):
        rollouts = collect(Game(judge, turns=2), [Task("t")], sampler, engines, POLICIES)
        means = merged([summarize(rollouts, "r")])
        assert means["r/left/reward_team"] == 3.0 and means["r/left/malformed"] == 0


def test_a_branch_that_was_broken_off_has_no_levels():
    def judge(said):
        if len(said) == 2:
            raise RuntimeError("it broke")
        rewards = {agent: Reward(team=3.0) for agent in AGENTS}
        return Transition(said, rewards, outcome=Outcome({"total": 3.0}))

    engines = {"a": numbering(), "b": numbering()}
    for sampler in (JointSampler(1, 2), TrajectorySampler(2)):
        rollouts = collect(Game(judge, turns=2), [Task("t")], sampler, engines, POLICIES)
        means = merged([summarize(rollouts, "r", ("total",))])
        assert (means["r/broken_off"], means["r/level_total"]) == (1, 0)


def test_an_earlier_agent_of_the_same_turn_is_not_excused():
    class Turns(Game):
        def acting(self, state):
            return (AGENTS[len(state)],) if len(state) < 2 else ()

        async def transition(self, state, actions):
            if actions == {"left": "0"}:
                raise RuntimeError("it broke")
            (agent,) = actions
            return Transition((*state, (actions[agent],) * 2), {agent: Reward()})

    engines = {"a": numbering(), "b": NoRoom(lambda *_: "")}
    (rollout,) = collect(Turns(None), [Task("t")], TreeSampler(2, 1), engines, POLICIES)
    means = merged([summarize([rollout], "r")])
    assert [len(g.candidates) for g in rollout.groups] == [2, 2]
    assert (means["r/too_long"], means["r/failed"]) == (1, 1 / 4)
