"""What a malformed answer costs, and what only tells candidates of one group apart."""

import statistics

import pytest

from games import AGENTS, POLICIES, Game, numbering
from teamtune.algorithms.credit import group_advantages
from teamtune.envs import Reward, Transition
from teamtune.rollout import JointSampler, TreeSampler, collect
from teamtune.tasks import Task

ONE = ("left",)


def rewards(values, bad=(), sampler=None, shaping=None):
    """What the left agent's candidates are worth, which say 0, 1, 2, ..."""

    def judge(said):
        k = int(said[-1][0])
        given = Reward(local=values[k], shaping=shaping[k] if shaping else 0.0)
        malformed = ONE if k in bad else ()
        return Transition(said, {"left": given}, malformed=malformed)

    game = Game(judge, agents=ONE)
    sampler = sampler or TreeSampler(len(values), 1)
    (rollout,) = collect(game, [Task("t")], sampler, {"a": numbering()}, {"left": "a"})
    return [c.reward for c in rollout.groups[0].candidates], rollout


def test_a_malformed_answer_is_a_tenth_of_the_spread_below_the_worst_other():
    found, _ = rewards([1.0, -50.0, 3.0, 2.0], bad={1})
    assert found == pytest.approx([1.0, 0.8, 3.0, 2.0])
    found, _ = rewards([2.0, 9.0, 2.0], bad={1})
    assert found == pytest.approx([2.0, 1.9, 2.0])


def test_where_all_are_malformed_none_is_better_than_it_was():
    found, rollout = rewards([0.0, 0.0], bad={0, 1})
    assert found == [0.0, 0.0] and rollout.error is None


def test_one_bad_answer_of_four_leaves_the_differences_of_the_others():
    found, _ = rewards([0.0, 0.5, 1.0, 0.0], bad={3})
    with_it = group_advantages(found).tolist()
    alone = group_advantages(found[:3]).tolist()
    kept = (with_it[2] - with_it[0]) / (alone[2] - alone[0])
    assert kept == pytest.approx(0.5 / statistics.stdev([0.0, 0.5, 1.0, -0.1]))
    assert kept > 0.95


@pytest.mark.parametrize("select", ["greedy", "softmax", "random"])
def test_a_malformed_answer_is_carried_on_only_where_all_are(select):
    for seed in range(20):
        sampler = TreeSampler(3, 1, select=select)

        def judge(said):
            malformed = ONE if said[-1][0] != "1" else ()
            return Transition(said, {"left": Reward()}, malformed=malformed)

        game = Game(judge, agents=ONE)
        (rollout,) = collect(
            game, [Task("t")], sampler, {"a": numbering()}, {"left": "a"}, seed=seed
        )
        assert [c.selected for c in rollout.groups[0].candidates] == [False, True, False]


def test_shaping_compares_the_candidates_of_a_tree_and_enters_no_joint_reward():
    shaped = [0.0, 4.0, 1.0]
    found, _ = rewards([1.0, 1.0, 1.0], shaping=shaped)
    assert found == [1.0, 5.0, 2.0]
    found, _ = rewards([1.0, 1.0, 1.0], shaping=shaped, sampler=JointSampler(3, 1))
    assert found == [1.0, 1.0, 1.0]


def test_softmax_weighs_the_team_reward_of_agents_at_once_by_its_temperature():
    def judge(said):
        best = said[-1] == ("1", "1")
        return Transition(said, {agent: Reward(team=float(best)) for agent in AGENTS})

    def shares(temperature):
        sampler = TreeSampler(2, 1, select="softmax", select_temperature=temperature)
        engines = {"a": numbering(), "b": numbering()}
        tasks = [Task(f"t{i}") for i in range(200)]
        found = collect(Game(judge), tasks, sampler, engines, POLICIES)
        return sum(r.groups[0].candidates[1].selected for r in found) / len(found)

    assert shares(0.05) == 1.0
    assert 0.4 < shares(100.0) < 0.6
