"""What all samplers share: seeds by agent and turn, and the levels with which an episode ends."""

import pytest

from games import AGENTS, POLICIES, Game, play
from teamtune.envs import Outcome, Reward, Transition
from teamtune.inference import ScriptedEngine
from teamtune.rollout import JointSampler, TrajectorySampler, TreeSampler, collect
from teamtune.tasks import Task


class Deaf(Game):
    """Everybody is always asked the same."""

    def observe(self, state, agent):
        return [{"role": "user", "content": "?"}]


@pytest.mark.parametrize("sampler", [TreeSampler(3, 6), JointSampler(3, 6, branching="chain")])
def test_every_agent_and_turn_draws_anew_though_prompts_and_rewards_are_equal(sampler):
    engine = ScriptedEngine(lambda prompt, seed: str(seed))
    game = Deaf(lambda said: 1.0, turns=6)
    (rollout,) = collect(game, [Task("t")], sampler, {"a": engine, "b": engine}, POLICIES)
    texts = [c.text for c in rollout.candidates]
    assert len(set(texts)) == len(texts) == 6 * 2 * 3
    for k in range(2):
        picks = [
            [c.selected for c in turn.groups[k].candidates].index(True) for turn in rollout.turns
        ]
        assert len(set(picks)) > 1


@pytest.mark.parametrize(
    "sampler", [TrajectorySampler(1, 3), TreeSampler(2, 3), JointSampler(2, 3)]
)
@pytest.mark.parametrize("judged", [1, 2, 3])
def test_the_levels_of_an_episode_are_those_of_its_last_judged_turn(sampler, judged):
    def judge(said):
        turn = len(said)
        levels = {"form": float(turn)} if turn <= judged else {}
        rewards = {agent: Reward(team=1.0) for agent in AGENTS}
        return Transition(said, rewards, outcome=Outcome(levels, judged=bool(levels)))

    assert play(Game(judge, turns=3), sampler).levels == {"form": float(judged)}


def test_alone_or_in_whole_episodes_a_reward_is_team_plus_local():
    def judge(said):
        return Transition(said, {agent: Reward(local=1.0, team=2.0) for agent in AGENTS})

    for sampler in (TrajectorySampler(), TreeSampler(2, 1), JointSampler(2, 1)):
        assert {c.reward for c in play(Game(judge), sampler).candidates} == {3.0}
    assert (TrajectorySampler().num_candidates, TrajectorySampler().max_turns) == (1, 4)
