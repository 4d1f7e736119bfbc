"""MAGRPO: returns, advantages and row weights by hand, and a loss equal to its nested means."""

import copy
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from factories import (
    END,
    built_policy,
    candidate,
    joint,
    model_folder,
    plain_logits,
    redraw,
    rollouts_of,
)
from games import AGENTS, Game, by_place, failing, play, won
from learning import close, update
from teamtune.algorithms import ATGRPO, MAGRPO, TokenBatch
from teamtune.algorithms.credit import joint_returns
from teamtune.envs import Reward
from teamtune.errors import ConfigError
from teamtune.experience import Group, GroupKey, Rollout, Turn, groups_of
from teamtune.policies import Policy
from teamtune.rollout import JointSampler

HUGE = 10**9
SHARED = Path(__file__).parents[4] / "shared/cases/joint_returns.json"


def credited(game: Game, sampler: JointSampler, answer: Any = None, **options: Any) -> Any:
    """The groups of one rollout by (agent, turn, node), with credit assigned."""
    rollout = play(game, sampler, answer)
    MAGRPO(**options).assign_credit([rollout])
    return by_place(rollout.groups)


def returns(group: Group) -> list[float | None]:
    return [c.return_ for c in group.candidates]


def advantages(group: Group) -> list[float | None]:
    return [c.advantage for c in group.candidates]


def weights(group: Group) -> list[float]:
    return [c.weight for c in group.candidates]


def two_turns(first: Sequence[float], second: Sequence[Sequence[float]]) -> Game:
    """Rewards by the left agent's numbers; an empty row of `second` is an episode that is over."""

    def judge(state: Any) -> Any:
        said = [int(turn[0]) for turn in state]
        if len(said) == 1:
            return won(state, first[said[0]], done=not second[said[0]])
        return second[said[0]][said[1]]

    return Game(judge, turns=2)


@pytest.mark.parametrize(
    ("gamma", "first", "second", "expected", "advantage", "later"),
    [
        (1.0, [0.5, 1.0], [[1, 3], [0, 2]], [2.5, 2.0], [0.25, -0.25], [[-1, 1], [-1, 1]]),
        (0.0, [0.5, 1.0], [[1, 3], [0, 2]], [0.5, 1.0], [-0.25, 0.25], [[-1, 1], [-1, 1]]),
        (0.5, [0.5, 1.0], [[1, 3], [0, 2]], [1.5, 1.5], [0.0, 0.0], [[-1, 1], [-1, 1]]),
        (
            0.9,
            [2.0, 0.0, 1.0],
            [[1, 1, 1], [], [0, 3, 0]],
            [2.9, 0.0, 1.9],
            [1.3, -1.6, 0.3],
            [[0, 0, 0], [], [-1, 2, -1]],
        ),
    ],
)
def test_known_trees(gamma, first, second, expected, advantage, later):
    sampler = JointSampler(len(first), 2)
    found = credited(two_turns(first, second), sampler, gamma=gamma)
    for agent in AGENTS:
        assert returns(found[agent, 0, ""]) == pytest.approx(expected, abs=1e-6)
        assert advantages(found[agent, 0, ""]) == pytest.approx(advantage, abs=1e-6)
        for j, row in enumerate(later):
            if row:
                assert advantages(found[agent, 1, f"/{j}"]) == pytest.approx(row, abs=1e-6)
            else:
                assert (agent, 1, f"/{j}") not in found


@pytest.mark.skipif(not SHARED.exists(), reason="the shared cases are not here")
def test_trees_of_the_shared_cases():
    cases = json.loads(SHARED.read_text())
    for case in cases["cases"]:
        sampler = JointSampler(len(case["turn1"]), 2)
        game = two_turns(case["turn1"], case["turn2_children"])
        found = credited(game, sampler, gamma=case["gamma"])
        first = found["left", 0, ""]
        assert returns(first) == pytest.approx(case["return_turn1"], abs=1e-6)
        assert advantages(first) == pytest.approx(case["advantage_turn1"], abs=1e-6)
        for j, row in enumerate(case["advantage_turn2"]):
            later = advantages(found["left", 1, f"/{j}"]) if row else row
            assert later == pytest.approx(row, abs=1e-6)
    cross = cases["cross"]
    found = credited(table(cross["rewards"]), JointSampler(2, 1, "cross"))
    assert returns(found["left", 0, ""]) == pytest.approx(cross["agent1_returns"], abs=1e-6)
    assert returns(found["right", 0, ""]) == pytest.approx(cross["agent2_returns"], abs=1e-6)
    assert advantages(found["left", 0, ""]) == pytest.approx(cross["agent1_advantages"], abs=1e-6)


def table(rewards: Sequence[Sequence[float]]) -> Game:
    """One turn: left's number picks the row, right's the column."""
    return Game(lambda state: rewards[int(state[0][0])][int(state[0][1])])


def test_a_cross_return_is_the_mean_over_joint_actions():
    found = credited(table([[1, 0], [0, 3]]), JointSampler(2, 1, "cross"))
    left, right = found["left", 0, ""], found["right", 0, ""]
    assert returns(left) == returns(right) == [0.5, 1.5]
    assert advantages(left) == advantages(right) == [-0.5, 0.5]
    found = credited(table([[1, 0], [2, 6]]), JointSampler(2, 1, "cross"))
    assert returns(found["left", 0, ""]) == [0.5, 4.0]
    assert advantages(found["right", 0, ""]) == [-0.75, 0.75]  # (1 + 2) / 2, (0 + 6) / 2


def test_under_cross_pairing_each_joint_action_has_its_own_future():
    def judge(state: Any) -> float:
        (i, j), *later = [tuple(map(int, turn)) for turn in state]
        return float(later[0][0] * (i + 2 * j)) if later else float(i == j)

    found = credited(Game(judge, turns=2), JointSampler(2, 2, "cross"), gamma=0.5)
    # R(i, j) = (i == j) + 0.5 * (i + 2 j) / 2: [[1, 0.5], [0.25, 1.75]]
    assert returns(found["left", 0, ""]) == [0.75, 1.0]
    assert returns(found["right", 0, ""]) == [0.625, 1.125]
    assert advantages(found["left", 1, "/1.1"]) == [-1.5, 1.5]
    assert advantages(found["right", 1, "/1.1"]) == [0.0, 0.0]


def test_a_chain_compares_immediate_rewards():
    sampler = JointSampler(2, 2, branching="chain")
    options: Any = {"gamma": 0.0, "branching": "chain"}
    found = credited(two_turns([1, 2], [[0, 0], [5, 9]]), sampler, **options)
    assert advantages(found["left", 0, ""]) == [-0.5, 0.5]
    assert advantages(found["right", 1, "/1"]) == [-2.0, 2.0]


@settings(deadline=None)
@given(
    gamma=st.sampled_from([0.0, 0.5, 1.0]),
    early=st.floats(-3, 5),
    failed=st.floats(-9, 5),
    turns=st.integers(2, 4),
    by_success=st.booleans(),
)
def test_finishing_early_never_pays_less_than_failing_first(
    gamma, early, failed, turns, by_success
):
    """Answer 0 ends with `early`; 1 earns no more than that, and only then may do the same."""
    failed = min(failed, early - 0.01)

    def judge(state: Any) -> Any:
        over = state[-1][0] == "0"
        return won(
            state, early if over else failed, done=over and by_success, success=over and by_success
        )

    threshold = None if by_success else early
    sampler = JointSampler(2, turns, termination_threshold=threshold)
    found = credited(Game(judge, turns), sampler, gamma=gamma)
    for group in found.values():
        finished, went_on = returns(group)
        assert finished >= went_on - 1e-9
    kept = sum(early * gamma**t for t in range(turns))
    assert returns(found["left", 0, ""])[0] == pytest.approx(kept)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [-1.0, 0.0, 2.0, -1.0]),
        ({"baseline": "leave_one_out"}, [-4 / 3, 0.0, 8 / 3, -4 / 3]),
        ({"baseline": "max"}, [-3.0, -2.0, 0.0, -3.0]),
        ({"scale": "std"}, [-0.707107, 0.0, 1.414214, -0.707107]),  # variance (1 + 4 + 1) / 3
    ],
)
def test_baselines_and_scale(options, expected):
    game = Game(lambda state: [0.0, 1.0, 3.0, 0.0][int(state[0][0])])
    found = credited(game, JointSampler(4, 1), **options)
    for agent in AGENTS:
        assert advantages(found[agent, 0, ""]) == pytest.approx(expected, abs=1e-6)


def value(state: Any) -> float:
    """A reward that depends on everything that was said."""
    return random.Random(repr(state)).uniform(-1, 1)


def rearrange(rollout: Rollout, order: Callable[[Group], list[int]]) -> None:
    """Leaves the candidates `order(group)` in that order, and the joint actions of those."""
    for turn in rollout.turns:
        kept = [order(group) for group in turn.groups]
        for group, own in zip(turn.groups, kept):
            group.candidates = [group.candidates[j] for j in own]
        for played in turn.joints:
            played.picks = tuple(own.index(j) for own, j in zip(kept, played.picks))


@pytest.mark.parametrize("pairing", ["aligned", "cross"])
def test_the_order_of_rollouts_of_joint_actions_and_of_candidates_does_not_matter(pairing):
    rollout = play(Game(value, turns=2), JointSampler(3, 2, pairing), failing(("left", 1)))
    other, beside = copy.deepcopy(rollout), play(Game(value), JointSampler(3, 1))
    beside.task = "beside"
    for group in beside.groups:
        group.key = replace(group.key, task="beside")
    rng = random.Random(0)
    rearrange(other, lambda group: rng.sample(range(3), 3))
    for turn in other.turns:
        rng.shuffle(turn.joints)
    MAGRPO(gamma=0.7).assign_credit([rollout, copy.deepcopy(beside)])
    MAGRPO(gamma=0.7).assign_credit([beside, other])
    expected, found = by_place(rollout.groups), by_place(other.groups)
    for place, group in expected.items():
        by_text = {c.text: (c.return_, c.advantage, c.weight) for c in found[place].candidates}
        assert by_text == {c.text: (c.return_, c.advantage, c.weight) for c in group.candidates}


@pytest.mark.parametrize("pairing", ["aligned", "cross"])
def test_dropping_failed_candidates_changes_nothing_for_the_others(pairing):
    rollout = play(Game(value, turns=2), JointSampler(3, 2, pairing), failing(("left", 1)))
    dropped = copy.deepcopy(rollout)
    rearrange(dropped, lambda g: [j for j, c in enumerate(g.candidates) if c.reward is not None])
    assert len(dropped.candidates) < len(rollout.candidates)
    algorithm = MAGRPO(gamma=0.7)
    for each in (rollout, dropped):
        algorithm.assign_credit([each])
    assert algorithm.denominator(algorithm.trainable(dropped.groups)) == 1
    for whole, rest in zip(rollout.groups, dropped.groups, strict=True):
        scored = [c for c in whole.candidates if c.reward is not None]
        assert scored == rest.candidates
        failures = [c for c in whole.candidates if c.reward is None]
        assert all((c.return_, c.advantage, c.weight) == (None, 0.0, 0.0) for c in failures)


def test_a_failure_far_down_one_branch_leaves_the_other_branches_alone():
    def broken(state: Any) -> float:
        return value(state) / (state != (("0", "0"), ("1", "1")))

    found = [credited(Game(judge, turns=2), JointSampler(3, 2)) for judge in (value, broken)]
    whole, rest = found
    for agent in AGENTS:
        for node in ("/1", "/2"):
            assert advantages(whole[agent, 1, node]) == advantages(rest[agent, 1, node])
    kept = [c.reward for c in rest["left", 1, "/0"].candidates]
    assert kept[1] is None
    mean = (kept[0] + kept[2]) / 2
    assert returns(rest["left", 0, ""])[0] == pytest.approx(value((("0", "0"),)) + mean)


def test_where_failures_hide_the_future_nothing_is_made_up():
    def judge(state: Any) -> float:
        return 1 / (len(state) == 1 or state[0][0] != "0") + float(state[0][0])

    game = Game(judge, turns=2)
    found = credited(game, JointSampler(3, 2))
    first = found["left", 0, ""]
    assert returns(first) == [None, 4.0, 6.0]
    assert advantages(first) == [0.0, -1.0, 1.0] and weights(first) == [0.0, 0.5, 0.5]
    found = credited(game, JointSampler(3, 2), gamma=0.0)
    assert returns(found["left", 0, ""]) == [1.0, 2.0, 3.0]


def test_returns_of_a_tree_by_itself():
    later = [joint((0,), 4.0, "a"), joint((1,), 6.0, "a"), joint((0,), 9.0, "a", compared=False)]
    first = [
        joint((0,), 1.0, "a", opens=Turn(None, [], later)),
        joint((1,), 2.0, "a", kept=2),
        joint((2,), 3.0, "a", opens=Turn(None, [])),
    ]
    tree = Turn(None, [], first)
    got = joint_returns(tree, 0.5)
    assert [got[j] for j in first] == [3.5, 3.5, None]
    assert [got[j] for j in later[:2]] == [4.0, 6.0]
    assert joint_returns(tree, 0.0)[first[2]] == 3.0 and joint_returns(Turn(None, []), 1.0) == {}


def test_row_weights_are_nested_means():
    """Left's answer 0 ends the game: one branch of three has no second turn."""

    def judge(state: Any) -> Any:
        return won(state, value(state), done=state[-1][0] == "0")

    found = credited(Game(judge, turns=2), JointSampler(3, 2), failing(("right", 2)))
    # two joint actions are valid, and one second-turn group of each agent
    assert weights(found["left", 0, ""]) == [0.5, 0.5, 0.0]
    assert set(found) == {(a, t, n) for a in AGENTS for t, n in ((0, ""), (1, "/1"))}
    assert weights(found["right", 1, "/1"]) == [0.5, 0.5, 0.0]
    found = credited(Game(value, turns=2), JointSampler(3, 2))
    for j in range(3):
        assert weights(found["left", 1, f"/{j}"]) == pytest.approx([1 / 9] * 3)


def test_what_cannot_be_compared_dilutes_no_mean_and_equal_returns_do():
    def judge(state: Any) -> float:
        if len(state) == 1:
            return value(state)
        if state[0][0] == "0":
            return 1 / (state[1][0] == "0")  # one of two is valid
        return 2.0 if state[0][0] == "1" else value(state)

    game = Game(judge, turns=2)
    found = credited(game, JointSampler(3, 2))
    assert weights(found["left", 1, "/0"]) == [0.0, 0.0, 0.0]
    assert weights(found["left", 1, "/1"]) == [0.0, 0.0, 0.0]  # no advantage, nothing to score
    assert weights(found["left", 1, "/2"]) == pytest.approx([1 / 6] * 3)
    algorithm = MAGRPO()
    groups = [found["left", 1, f"/{j}"] for j in range(3)]
    assert algorithm.trainable(groups) == groups[1:]
    found = credited(game, JointSampler(3, 2), reduction="token_mean")
    assert weights(found["left", 1, "/0"]) == weights(found["left", 1, "/1"]) == [0.0] * 3
    assert weights(found["left", 0, ""]) == [1.0] * 3


def test_denominators_count_tasks_or_tokens_and_add_up():
    tasks = [tree(f"t{i}", seed=i) for i in range(3)]
    for options, each in (({}, [1, 1, 1]), ({"reduction": "token_mean"}, None)):
        algorithm = MAGRPO(**options)
        for rollout in tasks:
            algorithm.assign_credit([rollout])
        alone = [algorithm.denominator(rollout.groups) for rollout in tasks]
        assert alone == (each or [rollout.tokens for rollout in tasks])
        before = [c.weight for rollout in tasks for c in rollout.candidates]
        algorithm.assign_credit(tasks)
        assert [c.weight for rollout in tasks for c in rollout.candidates] == before
        assert algorithm.denominator(groups_of(tasks)) == sum(alone)


def test_failed_answers_are_in_no_token_mean():
    answers = [candidate((3, END), 1.0), candidate((4, 5, END), 0.0)]
    answers.append(candidate((6, 7, 8, 9, END), 0.0, reward=None))
    groups = [Group(GroupKey("t", "left", 0), "a", "", (7,), answers)]
    algorithm = MAGRPO(reduction="token_mean")
    algorithm.assign_credit(rollouts_of(groups))
    assert algorithm.denominator(groups) == 5 and weights(groups[0]) == [1.0, 1.0, 0.0]


def batch(**tensors: Sequence[float]) -> TokenBatch:
    values = {k: torch.tensor(v) for k, v in tensors.items()}
    tokens = {"count": torch.tensor([1.0, 2.0]), "sequence": torch.tensor([0, 1])}
    return TokenBatch(**{"sampling_logprobs": torch.zeros(2), **tokens, **values})


def test_losses_of_two_tokens():
    tokens = {
        "logprobs": [-0.5, -2.0],
        "sampling_logprobs": [-1.0, -1.0],
        "advantages": [2.0, -1.0],
        "weight": [0.5, 3.0],
    }

    def loss(**options: Any) -> float:
        return float(MAGRPO(**options).loss(batch(**tokens))[0])

    up, down = 2.718281828**0.5, 1 / 2.718281828  # the ratios
    assert loss() == pytest.approx(0.5 * 2 * 0.5 * up - 3 * 1 * 2.0 * down)
    assert loss(ratio=True) == pytest.approx(-0.5 * 2 * up + 3 * down)
    assert loss(ratio=True, clip=0.2) == pytest.approx(-0.5 * 2 * 1.2 + 3 * 0.8)
    sums = MAGRPO(ratio=True, clip=0.2).loss(batch(**tokens))[1]
    assert float(sums["clip_frac"]) == 3.5
    assert "clip_frac" not in MAGRPO(ratio=True).loss(batch(**tokens))[1]
    tokens["ref_logprobs"] = [-0.5, -1.0]
    kl = 2 * (2.718281828 - 2)  # exp(1) - 1 - 1 for the second token, which two candidates share
    assert loss(kl_coef=0.1) == loss()
    term, sums = MAGRPO(kl_coef=0.1).regularizer(batch(**tokens))
    assert float(term) == pytest.approx(0.1 * kl) and float(sums["ref_kl"]) == pytest.approx(kl)


def test_the_weight_of_a_log_prob_is_truncated_at_two_and_has_no_gradient():
    """Where trainer and engine agree the loss is -A log pi, to the bit."""
    logprobs = torch.tensor([-0.5, -1.25], requires_grad=True)
    terms = {"advantages": [3.0, -1.0], "weight": [1.0, 1.0]}
    view = replace(batch(**terms, logprobs=[0.0, 0.0]), logprobs=logprobs)
    for sampled, factors in (((-0.5, -1.25), (1, 1)), ((-1.5, -1.25), (2, 1))):
        view.sampling_logprobs = torch.tensor(sampled)
        loss, _ = MAGRPO().loss(view)
        assert float(loss) == 3 * 0.5 * factors[0] - 1.25
        (slope,) = torch.autograd.grad(loss, logprobs)
        assert slope.tolist() == [-3.0 * factors[0], 1.0]


def tree(task: str, seed: int = 0, policies: str = "ab") -> Rollout:
    """Both agents' groups of a full tree with G = 2 and T = 2, with random ids and rewards."""
    rng = random.Random(seed)
    turns = []
    for node, turn in (("", 0), ("/0", 1), ("/1", 1)):
        rewards, groups = [rng.uniform(-1, 1) for _ in range(2)], []
        for agent, policy in zip(AGENTS, policies):
            answers = []
            for reward in rewards:
                ids = [*(rng.randrange(3, 29) for _ in range(rng.randint(1, 5))), END]
                drawn = (-3.0,) * len(ids)  # about what a policy says that knows nothing
                answers.append(candidate(ids, reward, sampling_logprobs=drawn))
            prompt = tuple(rng.randrange(3, 29) for _ in range(rng.randint(2, 6)))
            groups.append(Group(GroupKey(task, agent, turn, node), policy, "", prompt, answers))
        played = [joint((j, j), r, AGENTS, carried=True) for j, r in enumerate(rewards)]
        turns.append(Turn(None, groups, played))
    for played, later in zip(turns[0].joints, turns[1:]):
        played.opens = later
    return Rollout(task, turns[0])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("model"))


def train(
    policies: dict[str, Policy], rollouts: Sequence[Rollout], **options: Any
) -> tuple[dict[str, float], list[list[Tensor]]]:
    return update(policies, rollouts, MAGRPO(**options))


def token_logprobs(policy: Policy, group: Group, ids: Sequence[int]) -> list[float]:
    """By plain teacher forcing of one answer."""
    scores = plain_logits(policy, [*group.prompt_ids, *ids]).log_softmax(-1)
    logits = scores[len(group.prompt_ids) - 1 : -1]
    return logits.gather(1, torch.tensor(ids)[:, None])[:, 0].tolist()


def test_the_loss_is_a_mean_over_candidates_siblings_and_tasks_and_a_sum_over_turns(folder):
    rollouts = [tree(f"t{i}", seed=i) for i in range(3)]
    groups = groups_of(rollouts)
    policies = {name: built_policy(folder) for name in "ab"}
    MAGRPO().assign_credit(rollouts)
    for group in groups:  # as if the policies had just sampled, when no token has a weight but 1
        for c in group.candidates:
            redraw(c, token_logprobs(policies[group.policy], group, c.token_ids))

    def mean(values: Sequence[float]) -> float:
        return sum(values) / len(values)

    def of(group: Group) -> float:
        policy = policies[group.policy]
        return mean(
            [
                -c.advantage * sum(token_logprobs(policy, group, c.token_ids))
                for c in group.candidates
            ]
        )

    expected = {
        name: mean(
            [
                sum(
                    mean(
                        [
                            of(g)
                            for g in groups
                            if (g.key.task, g.key.turn, g.policy) == (f"t{i}", turn, name)
                        ]
                    )
                    for turn in range(2)
                )
                for i in range(3)
            ]
        )
        for name in "ab"
    }
    metrics, _ = train(policies, rollouts)
    assert abs(expected["a"] - expected["b"]) > 0.01
    for name in "ab":
        assert metrics[f"{name}/loss"] == pytest.approx(expected[name], abs=1e-5)
        tokens = sum(len(c.token_ids) for g in groups if g.policy == name for c in g.candidates)
        assert metrics[f"{name}/tokens"] == tokens


@pytest.mark.parametrize(
    "options", [{}, {"kl_coef": 0.5}, {"reduction": "token_mean"}, {"ratio": True, "clip": 0.1}]
)
def test_the_step_does_not_depend_on_the_split_into_micro_batches(folder, options):
    rollouts = [tree(f"t{i}", seed=i, policies="aa") for i in range(3)]
    steps = []
    for budget in (HUGE, 25, 1):
        policy = built_policy(folder, reference=True, token_budget=budget)
        with torch.no_grad():  # away from the reference
            policy.trainable_parameters()[0].mul_(1.3)
        steps.append(train({"a": policy}, copy.deepcopy(rollouts), **options))
    (metrics, (moved,)), *others = steps
    assert metrics["a/grad_norm"] > 0.01
    for other_metrics, (other,) in others:
        assert other_metrics == pytest.approx(metrics, rel=1e-4)
        close(other, moved)


def test_the_gradient_is_that_of_all_tasks_together_or_apart(folder):
    """As on ranks: each part's gradient, weighted by its share of the denominator, adds up."""
    parts = [[tree("t0", 0, "aa")], [tree("t1", 1, "aa"), tree("t2", 2, "aa")]]
    _, (whole,) = train({"a": built_policy(folder)}, [r for part in parts for r in part])
    _, (one,) = train({"a": built_policy(folder)}, parts[0])
    _, (two,) = train({"a": built_policy(folder)}, parts[1])
    close(whole, [a / 3 + b * 2 / 3 for a, b in zip(one, two)])


def test_agents_that_share_a_policy_add_up(folder):
    rollouts = [tree(f"t{i}", seed=i) for i in range(2)]
    split, (a, b) = train({name: built_policy(folder) for name in "ab"}, rollouts)
    together = copy.deepcopy(rollouts)
    for group in groups_of(together):
        group.policy = "team"
    shared, (moved,) = train({"team": built_policy(folder)}, together)
    assert shared["team/loss"] == pytest.approx(split["a/loss"] + split["b/loss"], abs=1e-5)
    close(moved, [x + y for x, y in zip(a, b)])


def test_token_means_of_a_shared_policy_are_the_token_weighted_mean(folder):
    rollout = tree("t0")
    groups = rollout.groups
    options: Any = {"reduction": "token_mean"}
    split, _ = train({name: built_policy(folder) for name in "ab"}, [rollout], **options)
    together = copy.deepcopy([rollout])
    for group in groups_of(together):
        group.policy = "team"
    shared, _ = train({"team": built_policy(folder)}, together, **options)
    n = {
        p: sum(len(c.token_ids) for g in groups if g.policy == p for c in g.candidates)
        for p in "ab"
    }
    mean = (n["a"] * split["a/loss"] + n["b"] * split["b/loss"]) / (n["a"] + n["b"])
    assert shared["team/loss"] == pytest.approx(mean, abs=1e-5)


def test_ratio_and_log_probs_have_one_gradient_on_fresh_samples(folder):
    moves = []
    for options in ({}, {"ratio": True}, {"ratio": True, "clip": 0.2}):
        policy = built_policy(folder)
        rollout = tree("t0", policies="aa")
        for group in rollout.groups:
            for c in group.candidates:
                redraw(c, token_logprobs(policy, group, c.token_ids))
        moves.append(train({"a": policy}, [rollout], **options)[1][0])
    close(moves[1], moves[0])
    close(moves[2], moves[0])


def test_equal_returns_everywhere_are_no_step(folder):
    rollout = tree("t0", policies="aa")
    for played in (j for turn in rollout.turns for j in turn.joints):
        played.rewards = dict.fromkeys(AGENTS, Reward(team=1.0))
    policy = built_policy(folder)
    metrics, (moved,) = train({"a": policy}, [rollout])
    assert "a/loss" not in metrics and policy.version == 0
    assert all(not m.any() for m in moved)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_candidates": 1}, "num_candidates: got 1"),
        ({"branching": "chain"}, "gamma: got 1.0, allowed with branching chain: 0"),
        ({"branching": "chain", "gamma": 0.9}, "gamma: got 0.9"),
        ({"clip": 0.2}, "clip: got 0.2, allowed with ratio false: null"),
        ({"entropy_target": 0.2}, "entropy_target: no effect with entropy_coef 0"),
        ({"select": "random"}, "select: got 'random', allowed with branching tree"),
    ],
)
def test_options_that_do_not_go_together_are_refused(wrong, message):
    with pytest.raises(ConfigError, match=message) as caught:
        MAGRPO(**wrong)
    assert "\n" not in str(caught.value)


def test_single_turn_groups_of_other_samplers_are_compared_by_their_rewards():
    rollouts = rollouts_of(tree("t0").groups[:2])
    expected = copy.deepcopy(rollouts)
    MAGRPO().assign_credit(rollouts)
    ATGRPO(scale="none").assign_credit(expected)
    assert [advantages(g) for g in groups_of(rollouts)] == [
        advantages(g) for g in groups_of(expected)
    ]
    assert any(advantages(groups_of(rollouts)[0]))
