"""Means over episodes: a failed one counts, and how episodes are spread over ranks does not."""

import pytest

from games import AGENTS, POLICIES, Game, data, numbering, told
from teamtune import ranks
from teamtune.envs import TLDR, Outcome, Reward, Transition
from teamtune.experience import Rollout
from teamtune.experience.ledger import Ledger, merged
from teamtune.inference import Completion, ScriptedEngine
from teamtune.rollout import JointSampler, TrajectorySampler, TreeSampler, collect
from teamtune.tasks import Task

WRITING = TLDR("parallel")
LEVELS = {name: maximum / 2 for name, maximum in WRITING.maxima.items()}
PLAYED = Rollout("a", success=True, return_=2.0, levels=LEVELS)
BROKEN = Rollout("b", error="every candidate failed")


class NoRoom(ScriptedEngine):
    """As an engine answers a prompt that leaves no room in its context."""

    async def generate(self, prompt_ids, n=1, sampling=None, seed=0):
        return [Completion((), (), "", "too_long", self.version)] * n


def test_an_episode_that_was_broken_off_earned_nothing_at_any_level():
    means = told(WRITING, [PLAYED, BROKEN])
    for name, maximum in WRITING.maxima.items():
        assert means[f"r/level_{name}"] == pytest.approx(maximum / 4)
    assert means["r/total"] == pytest.approx(sum(WRITING.maxima.values()) / 4)
    assert means["r/return_share"] == pytest.approx(0.25)
    assert means["r/broken_off"] == means["r/success"] == 0.5
    assert means["r/return"] == 1.0


def test_where_rewards_have_no_levels_none_are_told():
    means = told(Game(None), [BROKEN])
    assert means["r/success"] == 0 and not any("level" in name for name in means)


def test_how_episodes_are_spread_over_ranks_does_not_matter(monkeypatch):
    def sums(part):
        """What a rank that booked `part` tells the others."""
        ledger, told = Ledger("r", Game(None)), []
        ledger.book(part, 1.0)
        monkeypatch.setattr(ranks, "gathered", lambda own: told.append(own) or [own])
        ledger.close()
        return told[0]

    episodes = [BROKEN, PLAYED, *collect_one(TreeSampler(2, 1)), Rollout("c", return_=-1.0)]
    whole = merged([sums(episodes)])
    assert whole["left/spread"] == 1.0 and whole["return"] == (0 + 2 + 0 - 1) / 4
    assert "left/spread" not in sums(episodes[:2])  # a mean over the ranks that have any
    for cut in range(5):
        assert merged([sums(episodes[:cut]), sums(episodes[cut:])]) == pytest.approx(whole)


def collect_one(sampler):
    engines = {"a": numbering(), "b": numbering()}
    game = Game(lambda said: float(said[-1][0]))
    return collect(game, [Task("t")], sampler, engines, POLICIES)


def test_costs_are_per_task_and_the_sums_begin_anew_when_closed():
    ledger = Ledger("val", Game(None))
    rollouts = collect_one(TrajectorySampler(3))
    tokens = sum(r.tokens for r in rollouts)
    ledger.book(rollouts, 2.0)
    ledger.book(rollouts, 4.0)
    first = ledger.close()
    assert len(rollouts) == 3 and tokens > 0
    assert first["val/tokens"] == first["val/tokens_per_task"] * 2 == 2 * tokens
    assert first["val/seconds_per_task"] == 3.0
    ledger.book(rollouts[:1], 1.0)
    assert ledger.close()["val/tokens"] == rollouts[0].tokens


def test_samples_tell_pass_at_k_and_failures_alone():
    ledger = Ledger("val", Game(None), samples=2)
    won, lost = Rollout("a", success=True), Rollout("a")
    ledger.book([Rollout("a"), Rollout("b")], 1.0)
    ledger.book_samples([won, lost, Rollout("b", success=True), Rollout("b", success=True)])
    means = ledger.close()
    assert (means["val/pass_at_1"], means["val/pass_at_2"]) == (0.75, 1.0)
    assert means["val/success"] == 0 and means["val/tasks"] == 2


def test_why_candidates_failed_is_kept_until_closed():
    def judge(said):
        raise RuntimeError("it broke")

    ledger = Ledger("r", Game(None))
    engines = {"a": numbering(), "b": numbering()}
    ledger.book(collect(Game(judge), [Task("t")], JointSampler(2), engines, POLICIES), 1.0)
    (reason,) = ledger.reasons
    assert reason.startswith("RuntimeError: it broke (")
    assert ledger.close()["r/failed"] == 1.0 and ledger.reasons == set()


def test_a_task_that_is_too_long_is_counted_and_its_answers_are_no_failures():
    engines = {"a": ScriptedEngine(lambda prompt, seed: "1"), "b": NoRoom(lambda *_: "")}
    team = {"left": "a", "right": "b"}
    game = Game(lambda _: 1.0)
    (rollout,) = collect(game, [Task("d")], JointSampler(2, 1), engines, team)
    assert [c.completion.stop_reason for c in rollout.candidates] == ["stop"] * 2 + ["too_long"] * 2
    assert all((c.reward, c.status) == (None, "excused") for c in rollout.candidates)
    means = told(game, [rollout, PLAYED])
    assert means["r/too_long"] == 0.5 and means["r/failed"] == 0


@pytest.mark.parametrize(
    "sampler", [JointSampler(4), JointSampler(4, pairing="cross"), TreeSampler(4, 1)]
)
def test_answers_that_hold_nothing_usable_are_counted_by_agent(sampler):
    def judge(said):
        bad = tuple(agent for agent, text in zip(AGENTS, said[-1]) if text == "3")
        return Transition(said, {agent: Reward() for agent in AGENTS}, malformed=bad)

    engines = {"a": numbering(), "b": numbering(lambda prompt, k: "3" if k else "0")}
    game = Game(judge)
    (rollout,) = collect(game, [Task("t")], sampler, engines, POLICIES)
    means = told(game, [rollout])
    assert (means["r/left/malformed"], means["r/right/malformed"]) == (0.25, 0.75)
    shown = data([rollout])[0]["turn"]["groups"][0]["candidates"]
    assert [c["malformed"] for c in shown] == [False, False, False, True]


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
    means = told(game, [rollout])
    failed = [c for g in rollout.groups for c in g.candidates if c.reward is None]
    assert len(rollout.groups) == 4 and len(failed) == 2 + 4
    assert means["r/too_long"] == 1 and means["r/failed"] == 2 / 8


def test_steps_that_are_not_judged_are_in_no_mean_of_rewards():
    def judge(said):
        rewards = {agent: Reward(team=3.0 * (len(said) == 2)) for agent in AGENTS}
        return Transition(said, rewards, outcome=Outcome(judged=len(said) == 2))

    engines = {"a": numbering(), "b": numbering()}
    game = Game(judge, turns=2)
    for sampler in (JointSampler(1, 2), TrajectorySampler(1, 2)):
        means = told(game, collect(game, [Task("t")], sampler, engines, POLICIES))
        assert means["r/left/reward_team"] == 3.0 and means["r/left/malformed"] == 0


def test_a_branch_that_was_broken_off_has_no_levels():
    def judge(said):
        if len(said) == 2:
            raise RuntimeError("it broke")
        rewards = {agent: Reward(team=3.0) for agent in AGENTS}
        return Transition(said, rewards, outcome=Outcome({**LEVELS, "total": 3.0}))

    engines = {"a": numbering(), "b": numbering()}
    for sampler in (JointSampler(1, 2), TrajectorySampler(1, 2)):
        rollouts = collect(Game(judge, turns=2), [Task("t")], sampler, engines, POLICIES)
        means = told(WRITING, rollouts)
        assert (means["r/broken_off"], means["r/total"]) == (1, 0)


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
    game = Turns(None)
    (rollout,) = collect(game, [Task("t")], TreeSampler(2, 1), engines, POLICIES)
    means = told(game, [rollout])
    assert [len(g.candidates) for g in rollout.groups] == [2, 2]
    assert (means["r/too_long"], means["r/failed"]) == (1, 1 / 4)
