"""The joint sampler against rewards and trees worked out by hand, with scripted engines."""

import asyncio
import math
import random
from collections import Counter

import pytest

from games import AGENTS, Game, by_place, data, failing, numbering, play, told, won
from teamtune.envs import TLDR, Outcome, PlanPath, Reward, Transition
from teamtune.errors import ConfigError
from teamtune.inference import ScriptedEngine
from teamtune.rollout import JointSampler, collect
from teamtune.tasks import Task


def product(state):
    """Each turn's reward: ten times the left number plus the right one, of the last turn."""
    left, right = map(int, state[-1])
    return 10.0 * left + right


def rewards(group):
    return [c.reward for c in group.candidates]


def test_aligned_pairs_the_answers_of_equal_number():
    (turn,) = play(Game(product), JointSampler(3, 1)).turns
    left, right = turn.groups
    assert rewards(left) == rewards(right) == [0.0, 11.0, 22.0]
    assert [g.policy for g in (left, right)] == ["a", "b"]
    assert [[j.reward for j in turn.joints_of(0, k)] for k in range(3)] == [[0.0], [11.0], [22.0]]


def test_cross_gives_an_answer_the_mean_over_all_joint_actions_that_contain_it():
    left, right = play(Game(product), JointSampler(2, 1, pairing="cross")).groups
    assert rewards(left) == [0.5, 10.5]  # (0 + 1) / 2, (10 + 11) / 2
    assert rewards(right) == [5.0, 6.0]  # (0 + 10) / 2, (1 + 11) / 2
    assert [c.reward_team for c in left.candidates] == [0.5, 10.5]


def test_the_joint_reward_is_the_mean_over_agents_of_team_and_local():
    def judge(state):
        return Transition(state, {"left": Reward(1.0, 4.0), "right": Reward(3.0, 4.0)})

    left, right = play(Game(judge), JointSampler(2, 1)).groups
    assert rewards(left) == rewards(right) == [6.0, 6.0]
    assert [(c.reward_local, c.reward_team) for c in right.candidates] == [(3.0, 4.0)] * 2


@pytest.mark.parametrize(
    ("pairing", "branching", "leaves", "groups"),
    [
        ("aligned", "tree", 2**3, 2 * (1 + 2 + 4)),
        ("cross", "tree", 4**3, 2 * (1 + 4 + 16)),
        ("aligned", "chain", 2, 2 * 3),
        ("cross", "chain", 4, 2 * 3),
    ],
)
def test_the_number_of_leaves_is_known_before(pairing, branching, leaves, groups):
    sampler = JointSampler(2, 3, pairing, branching)
    assert sampler.leaves(2) == leaves
    game = Game(product)
    assert branching == "chain" or sampler.describe(game).endswith(": up to 64 leaves per task")
    assert branching == "tree" or sampler.describe(game).endswith(f": {leaves} leaves per task")
    rollout = play(Game(product, turns=3), sampler)
    assert len(rollout.groups) == groups
    assert sum(len(t.joints) for t in rollout.turns if t.groups[0].key.turn == 2) == leaves


@pytest.mark.parametrize("pairing", ["aligned", "cross"])
def test_every_group_answers_the_prompt_of_the_state_that_its_node_names(pairing):
    game, sampler = Game(product, turns=3), JointSampler(2, 3, pairing)
    rollout = play(game, sampler)
    states, nodes, leaves = {"": ()}, set(), set()
    for turn in rollout.turns:
        (node,) = {group.key.node for group in turn.groups}
        nodes.add(node)
        assert turn.state == states[node]
        for group in turn.groups:
            assert len(states[node]) == group.key.turn
            assert group.prompt == game.observe(states[node], group.key.agent)[0]["content"]
        for joint in turn.joints:
            after = (*turn.state, tuple(map(str, joint.picks)))
            assert joint.after == after and joint.reward == product(after)
            if joint.opens is None:
                leaves.add(after)
            else:
                states[joint.opens.groups[0].key.node] = after
    assert nodes == set(states) and len(leaves) == sampler.leaves(2)
    assert {len(state) for state in leaves} == {3}


def test_a_chain_carries_the_best_joint_action_on():
    sampler = JointSampler(3, 2, branching="chain")
    rollout = play(Game(lambda s: [5.0, 7.0, 1.0][int(s[-1][0])], turns=2), sampler)
    first, _, later, _ = rollout.groups
    assert [c.selected for c in first.candidates] == [False, True, False]
    assert later.prompt == "left/1" and later.key.node == "/1"
    assert rollout.return_ == 14.0


def chosen(**settings):
    sampler = JointSampler(3, 1, branching="chain", **settings)
    tasks, policies = [Task(str(i)) for i in range(300)], dict.fromkeys(AGENTS, "p")
    game = Game(lambda s: float(s[-1][0] != "0"))
    counts = Counter()
    for rollout in collect(game, tasks, sampler, {"p": numbering()}, policies, seed=4):
        left, right = rollout.groups
        (k,) = [k for k, c in enumerate(left.candidates) if c.selected]
        assert right.candidates[k].selected
        counts[k] += 1
    return counts


def test_a_chain_breaks_ties_evenly_and_random_ignores_rewards():
    ties = chosen()
    assert set(ties) == {1, 2} and abs(ties[1] - 150) < 45  # standard deviation 8.7
    assert all(abs(n - 100) < 41 for n in chosen(select="random").values())  # 8.2


def test_a_failed_answer_voids_its_joint_action():
    (turn,) = play(Game(product), JointSampler(3, 1), failing(("left", 1))).turns
    left, right = turn.groups
    assert rewards(left) == rewards(right) == [0.0, None, 22.0]
    assert left.candidates[1].completion.stop_reason == "failed" and turn.joints_of(1, 1) == []
    assert [c.status for c in right.candidates] == ["scored", "failed", "scored"]
    assert right.candidates[1].reason == "an answer beside it is missing"


def test_under_cross_pairing_a_failed_answer_leaves_the_others_their_valid_joint_actions():
    sampler = JointSampler(2, 1, pairing="cross")
    left, right = play(Game(product), sampler, failing(("left", 1))).groups
    assert rewards(left) == [0.5, None] and rewards(right) == [0.0, 1.0]


@pytest.mark.parametrize("odd", [math.nan, math.inf])
def test_a_broken_transition_and_a_reward_that_is_no_number_are_failures(odd):
    def judge(state):
        return [1.0, 1 / 0 if state[-1][0] == "1" else 0.0, odd][int(state[-1][0])]

    game = Game(judge)
    rollout = play(game, JointSampler(3, 1))
    for group in rollout.groups:
        assert rewards(group)[1:] == [None, None]
        assert "ZeroDivisionError" in group.candidates[1].reason
        assert "not a finite number" in group.candidates[2].reason
    assert told(game, [rollout])["r/failed"] == pytest.approx(2 / 3)


def test_a_branch_in_which_everything_fails_says_so_and_the_others_go_on():
    def judge(state):
        return 1 / (len(state) == 1 or state[0][0] != "0")

    rollout = play(Game(judge, turns=2), JointSampler(2, 2))
    found = by_place(rollout.groups)
    assert rewards(found["left", 1, "/0"]) == [None, None]
    assert rewards(found["left", 1, "/1"]) == [1.0, 1.0]
    assert "branch /0" in rollout.error and rollout.return_ == 2.0


def test_an_episode_in_which_everything_fails_ends_and_says_so():
    rollout = play(Game(lambda s: 1 / 0, turns=2), JointSampler(2, 2))
    assert len(rollout.groups) == 2 and "first turn" in rollout.error
    assert (rollout.return_, rollout.success) == (0.0, False)


def test_a_branch_ends_at_the_threshold_and_its_reward_is_kept():
    rollout = play(Game(product, turns=4), JointSampler(2, 3, termination_threshold=11.0))
    assert [(j.reward, j.kept) for j in rollout.first.joints] == [(0, 0), (11, 2)]
    kept = {turn.groups[0].key.node: [j.kept for j in turn.joints] for turn in rollout.turns}
    assert kept == {"": [0, 2], "/0": [0, 1], "/0/0": [0, 0]}


def test_success_keeps_its_reward_and_any_other_end_does_not():
    def judge(state):
        return won(state, 1.0, done=True, success=state[-1][0] == "0")

    (turn,) = play(Game(judge), JointSampler(2, 3)).turns
    assert [j.kept for j in turn.joints] == [2, 0]


def test_the_outcome_is_that_of_the_first_branch_and_the_return_a_mean_over_leaves():
    def judge(state):
        final = len(state) == 2
        return won(state, product(state), done=final, success=final and state[0][0] == "0")

    rollout = play(Game(judge, turns=2), JointSampler(2, 2))
    assert rollout.success
    assert rollout.return_ == pytest.approx((0 + 0 + 0 + 11 + 11 + 0 + 11 + 11) / 4)
    assert not play(Game(lambda s: product(s), turns=2), JointSampler(2, 2)).success


def noise(prompt, seed):
    return str(random.Random(f"{prompt}{seed}").randrange(10))


def sampled(tasks, sampler, seed=0):
    engine = ScriptedEngine(noise)
    return collect(
        Game(product, turns=2), tasks, sampler, {"p": engine}, dict.fromkeys(AGENTS, "p"), seed
    )


@pytest.mark.parametrize("settings", [{}, {"pairing": "cross"}, {"branching": "chain"}])
def test_equal_seeds_give_equal_rollouts_in_any_order_of_tasks(settings):
    tasks, sampler = [Task(str(i)) for i in range(5)], JointSampler(3, 2, **settings)
    first = data(sampled(tasks, sampler))
    assert first == data(sampled(tasks[::-1], sampler))[::-1]
    assert first[2:3] == data(sampled([tasks[2]], sampler))
    assert first != data(sampled(tasks, sampler, seed=1))


def test_siblings_with_one_prompt_draw_their_own_answers():
    rollout = play(Game(lambda s: 0.0, turns=2), JointSampler(4, 2), lambda prompt, k: "same")
    assert len({g.prompt_ids for g in rollout.groups}) == 4  # two agents, two turns
    env, engine = (
        Game(lambda s: 0.0, turns=2),
        ScriptedEngine(lambda p, s: "x" if p[-1] == "/" else str(s)),
    )
    rollout = collect(
        env, [Task("t")], JointSampler(4, 2), {"p": engine}, dict.fromkeys(AGENTS, "p")
    )[0]
    later = [c.text for g in rollout.groups if g.key.turn == 1 for c in g.candidates]
    assert len(set(later)) == len(later) == 2 * 4 * 4


def test_agents_in_turn_are_a_tree_of_single_actions():
    env = PlanPath(size=5, first_role="proposer", max_moves=2)
    engine = ScriptedEngine(lambda p, s: " ".join(random.Random(s).choices("UDLR", k=2)))
    policies = dict.fromkeys(env.agents, "p")
    task = env.task(3)
    rollout = collect(env, [task], JointSampler(2, 1), {"p": engine}, policies)[0]
    first, *rest = rollout.groups
    assert [turn.groups for turn in rollout.turns] == [[group] for group in rollout.groups]
    assert first.key.agent == "proposer" and [g.key.agent for g in rest] == ["planner"] * 2
    for candidate, group in zip(first.candidates, rest):
        step = asyncio.run(env.transition(env.reset(task), {"proposer": candidate.text}))
        assert candidate.reward == step.rewards["proposer"].local + step.rewards["proposer"].team
        assert group.prompt == "\n".join(m["content"] for m in env.observe(step.state, "planner"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"select": "random"},
        {"termination_threshold": 1.0},
    ],
)
def test_settings_without_effect_are_refused(wrong):
    with pytest.raises(ConfigError, match="allowed"):
        JointSampler(**wrong)


def test_an_early_end_is_paid_for_the_joint_answers_that_the_environment_still_has():
    left = Transition(("1",), {a: Reward(team=3.0) for a in AGENTS}, outcome=Outcome(remaining=1))
    sampler = JointSampler(1, 4, termination_threshold=3.0)
    assert [j.kept for j in play(Game(lambda _: left, turns=4), sampler).first.joints] == [1]
    over = Transition(("1",), {a: Reward(team=3.0) for a in AGENTS}, done=True)
    assert [j.kept for j in play(Game(lambda _: over, turns=1), sampler).first.joints] == [0]


@pytest.mark.parametrize("solved", [True, False])
def test_a_branch_that_the_threshold_ends_is_solved_where_the_environment_says_so(solved):
    found = Transition(
        ("1",), {a: Reward(team=3.0) for a in AGENTS}, outcome=Outcome(solved=solved)
    )
    rollout = play(Game(lambda _: found, turns=2), JointSampler(1, 2, termination_threshold=3))
    assert rollout.success is solved


def test_the_leaves_of_a_sequential_round_are_counted_step_by_step():
    game = TLDR("sequential")
    assert JointSampler(4, 1).describe(game).endswith(" 16 leaves per task")
    assert JointSampler(4, 1, "cross").describe(game).endswith(" 16 leaves per task")


def test_the_return_counts_a_reward_that_is_kept_in_every_turn_it_is_kept_for():
    rollout = play(Game(product, turns=3), JointSampler(1, 3, termination_threshold=0.0))
    (joint,) = rollout.first.joints
    assert joint.kept == 2 and rollout.return_ == 3 * joint.reward
    won_early = Transition(("1",), {a: Reward(team=3.0) for a in AGENTS}, True, True)
    assert play(Game(lambda _: won_early, turns=2), JointSampler(1, 2)).return_ == 6.0


def test_a_threshold_of_nothing_does_not_end_a_round_before_it_is_judged():
    def judge(state):
        return won(state, 1.0, done=True) if len(state) == 2 else unjudged(state)

    def unjudged(state):
        return Transition(state, {a: Reward() for a in AGENTS}, outcome=Outcome(judged=False))

    for threshold in (None, 0.0):
        rollout = play(Game(judge, turns=2), JointSampler(2, 2, termination_threshold=threshold))
        assert (rollout.return_, len(rollout.groups)) == (1.0, 6)
