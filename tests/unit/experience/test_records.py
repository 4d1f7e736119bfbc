"""The record: a tree whose order is that of play, and what its parts know of themselves."""

import json

import pytest

from factories import candidate, group, joint
from games import AGENTS, Game, data, failing, play
from teamtune.algorithms import MAGRPO
from teamtune.envs import Reward, Transition
from teamtune.experience import Joint, Rollout, Score, Turn, count_tokens, groups_of
from teamtune.experience.plain import plain
from teamtune.inference import Completion
from teamtune.rollout import JointSampler, TreeSampler


def product(state):
    left, right = map(int, state[-1])
    return 10.0 * left + right


def test_turns_and_groups_come_depth_first():
    rollout = play(Game(product, turns=3), JointSampler(2, 3))
    nodes = [turn.groups[0].key.node for turn in rollout.turns]
    assert nodes == ["", "/0", "/0/0", "/0/1", "/1", "/1/0", "/1/1"]
    places = [(g.key.node, g.key.agent) for g in rollout.groups]
    assert places == [(node, agent) for node in nodes for agent in AGENTS]
    assert groups_of([rollout, rollout]) == rollout.groups * 2
    assert [c.text for c in rollout.candidates] == ["0", "1"] * 14


def test_an_empty_rollout_has_nothing():
    rollout = Rollout("t")
    assert rollout.turns == rollout.groups == rollout.candidates == []
    assert rollout.tokens == 0 and not rollout.too_long


def test_a_turn_tells_what_was_carried_on_and_what_a_candidate_is_compared_by():
    joints = [
        joint((0, 0), 1.0, AGENTS),
        joint((0, 1), 2.0, AGENTS, carried=True),
        joint((1, 1), 3.0, AGENTS, compared=False, carried=True),
    ]
    turn = Turn(None, [], joints)
    assert turn.carried == joints[1:]
    assert turn.joints_of(0, 0) == joints[:2]  # the first group's first candidate
    assert turn.joints_of(1, 1) == [joints[1]]
    assert turn.joints_of(0, 1) == []


def test_a_pair_that_nobody_sampled_is_carried_on_and_credits_nobody():
    def judge(state):
        left, right = state[-1]
        return Transition(state, {"left": Reward(float(left)), "right": Reward(-float(right))})

    (turn,) = play(Game(judge), TreeSampler(2, 1)).turns
    assert [j.picks for j in turn.joints] == [(0, 0), (1, 1), (1, 0)]
    assert [j.picks for j in turn.carried] == [(1, 0)]
    assert [j.compared for j in turn.joints] == [True, True, False]
    assert turn.joints_of(0, 1) == [turn.joints[1]]


def test_a_joint_reward_is_the_mean_of_what_agents_got():
    rewards = {"left": Reward(local=1.0, team=4.0), "right": Reward(local=3.0, team=4.0)}
    assert Joint((0, 0), None, rewards, 0.0).reward == 6.0


def test_statuses_and_rewards_go_together():
    one = candidate((3, 4), reward=None)
    one.settle(Score(1.5, 0.5, 1.0))
    assert (one.status, one.reward, one.reward_local, one.reward_team) == ("scored", 1.5, 0.5, 1.0)
    one.fail("it broke")
    assert (one.status, one.reward, one.reason) == ("failed", None, "it broke")
    one.excuse("no room")
    assert (one.status, one.reward_local, one.reason) == ("excused", None, "no room")
    one.settle(Score(0.0, 0.0, 0.0))
    assert (one.status, one.reward, one.reason) == ("scored", 0.0, None)


@pytest.mark.parametrize(
    ("advantage", "credited"),
    [(None, False), (0.0, False), (-0.5, True), ([0.0, 0.0], False), ((0.0, 0.1), True)],
)
def test_a_candidate_is_credited_where_any_token_is(advantage, credited):
    assert candidate((3, 4), advantage, reward=1.0).credited is credited


def test_the_spread_of_a_group_is_that_of_its_scored_candidates():
    answers = [candidate((3,), reward=r) for r in (1.0, None, -0.5)]
    assert group((7,), answers).spread == 1.5
    assert group((7,), answers[:2]).spread == 0


def test_tokens_and_room_are_counted_over_the_tree():
    answers = [candidate((3, 4)), candidate((5,), reward=None)]
    rollout = Rollout("t", Turn(None, [group((7,), answers)]))
    assert count_tokens([rollout, rollout]) == 6 and not rollout.too_long
    answers[1].completion = Completion((), (), "", "too_long", 0)
    assert rollout.too_long


def test_plain_data_is_the_whole_tree_and_json():
    rollout = play(Game(product, turns=2), JointSampler(2, 2), failing(("right", 1)))
    MAGRPO(gamma=0.5).assign_credit([rollout])
    told = plain(rollout, lambda state: "|".join(map("-".join, state)))
    assert json.loads(json.dumps(told)) == told
    assert (told["task"], told["episode"], told["error"]) == ("t", 0, None)
    turn = told["turn"]
    assert turn["state"] == "" and [g["agent"] for g in turn["groups"]] == list(AGENTS)
    (only,) = turn["joints"]  # the other one had no right answer
    assert only["picks"] == [0, 0] and only["after"] == "0-0"
    assert only["reward"] == 0.0 and only["carried"] and only["compared"]
    assert only["rewards"] == {agent: {"local": 0.0, "team": 0.0} for agent in AGENTS}
    assert (
        only["opens"]["groups"][0]["node"] == "/0" and only["opens"]["joints"][0]["opens"] is None
    )
    statuses = [[c["status"] for c in g["candidates"]] for g in turn["groups"]]
    assert statuses == [["scored", "failed"]] * 2
    assert turn["groups"][0]["candidates"][1]["reason"] == "an answer beside it is missing"
    assert [c["return"] for c in turn["groups"][0]["candidates"]] == [0.0, None]
    assert told["return"] == 0.0


def test_plain_data_holds_advantages_of_tokens_and_what_was_selected():
    answers = [candidate((3, 4), (0.5, -0.5), reward=1.0), candidate((5,), 0.25, selected=True)]
    (told,) = data([Rollout("t", Turn("s", [group((7,), answers)], error="it broke"), episode=2)])
    shown = told["turn"]["groups"][0]["candidates"]
    assert [c["advantage"] for c in shown] == [[0.5, -0.5], 0.25]
    assert [c["selected"] for c in shown] == [False, True]
    assert told["turn"]["error"] == "it broke" and told["turn"]["state"] == "'s'"
    assert told["episode"] == 2 and json.dumps(told)
