"""Advantages against numbers worked out by hand, and the laws that every grouping keeps."""

import json
import math
import random
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from factories import candidate, rollouts_of
from teamtune.algorithms import ATGRPO, TokenBatch
from teamtune.algorithms.credit import group_advantages
from teamtune.algorithms.losses import clipped_share, clipped_surrogate, kl_estimate
from teamtune.experience import Group, GroupKey

FAILED = None
SHARED = Path(__file__).parents[4] / "shared/cases/group_advantages.json"


@pytest.mark.parametrize(
    ("rewards", "standardised", "centred"),
    [
        ([1, 0, 0, 1], [0.866025, -0.866025, -0.866025, 0.866025], [0.5, -0.5, -0.5, 0.5]),
        (
            [0.1, 0.5, 0.9, 2.0],
            [-0.947403, -0.458421, 0.030561, 1.375262],
            [-0.775, -0.375, 0.025, 1.125],
        ),
        (
            [-2, -1, -1.5, -0.5],
            [-1.161895, 0.387298, -0.387298, 1.161895],
            [-0.75, 0.25, -0.25, 0.75],
        ),
        ([0.3] * 5, [0.0] * 5, [0.0] * 5),
        ([1, FAILED, 0, 1], [0.57735, 0, -1.154701, 0.57735], [1 / 3, 0, -2 / 3, 1 / 3]),
        ([1, math.nan, 0, 1], [0.57735, 0, -1.154701, 0.57735], [1 / 3, 0, -2 / 3, 1 / 3]),
        ([5.0], [0.0], [0.0]),
        ([FAILED, 2.0, FAILED], [0, 0, 0], [0, 0, 0]),
        ([1000.1, 1000.2, 1000.3, 1000.2], [-1.224745, 0, 1.224745, 0], [-0.1, 0, 0.1, 0]),
        ([], [], []),
    ],
)
def test_advantages_of_known_groups(rewards, standardised, centred):
    assert group_advantages(rewards).tolist() == pytest.approx(standardised, abs=1e-5)
    assert group_advantages(rewards, scale="none").tolist() == pytest.approx(centred, abs=1e-5)


@pytest.mark.skipif(not SHARED.exists(), reason="the shared cases are not here")
def test_advantages_of_the_shared_cases():
    for case in json.loads(SHARED.read_text())["groups"]:
        got = [group_advantages(case["rewards"], scale).tolist() for scale in ("std", "none")]
        assert got[0] == pytest.approx(case["mean_std"], abs=1e-5), case["name"]
        assert got[1] == pytest.approx(case["mean"], abs=1e-5), case["name"]


def test_leave_one_out_compares_with_the_mean_of_the_others():
    # others' means: (0 + 3) / 2, (1 + 3) / 2, (1 + 0) / 2
    got = group_advantages([1, 0, 3], scale="none", baseline="leave_one_out")
    assert got.tolist() == pytest.approx([-0.5, -2.0, 2.5])


def test_the_maximum_as_baseline_leaves_nothing_positive():
    got = group_advantages([1, None, 0, 3], scale="none", baseline="max")
    assert got.tolist() == pytest.approx([-2.0, 0.0, -3.0, 0.0])


@pytest.mark.parametrize("baseline", ["mean", "leave_one_out", "max"])
def test_the_scale_is_the_same_for_every_baseline(baseline):
    rewards = [1.0, 0.0, 3.0, 0.5]
    raw = group_advantages(rewards, "none", baseline)
    deviation = torch.tensor(rewards, dtype=torch.double).std()
    assert torch.allclose(group_advantages(rewards, "std", baseline), raw / deviation)


@pytest.mark.parametrize(
    ("rewards", "flat"),
    [
        ([0.0, 0.9e-9], True),
        ([0.0, 1e-9], True),
        ([0.0, 1.1e-9], False),
        ([0.5, 0.5 + 0.9e-9], True),
        ([1e6, 1e6 + 0.9e-3], True),
        ([1e6, 1e6 + 1.1e-3], False),
        ([-1e6, -1e6 + 0.9e-3], True),
        ([None, 3.0], True),
    ],
)
def test_what_is_no_more_than_rounding_is_no_spread(rewards, flat):
    assert (group_advantages(rewards).abs().max() == 0) == flat


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e6 + 1 / 3, -0.7])
def test_equal_rewards_of_any_size_have_no_advantage(value):
    assert group_advantages([value] * 7).tolist() == [0.0] * 7


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_infinite_rewards_raise(value):
    with pytest.raises(ValueError, match="infinite"):
        group_advantages([1.0, value])


@pytest.mark.parametrize("wrong", [{"scale": "sd"}, {"baseline": "median"}])
def test_unknown_choices_raise(wrong):
    with pytest.raises(ValueError, match="allowed"):
        group_advantages([1.0, 2.0], **wrong)


rewards = st.lists(
    st.one_of(st.none(), st.just(math.nan), st.floats(-100, 100)), min_size=1, max_size=9
)


@given(rewards, st.randoms(use_true_random=False))
def test_permuting_candidates_permutes_advantages(values, rng):
    order = list(range(len(values)))
    rng.shuffle(order)
    direct = group_advantages(values)
    permuted = group_advantages([values[i] for i in order])
    assert torch.allclose(permuted, direct[order], atol=1e-9)


@given(rewards)
def test_result_is_float64_finite_and_zero_for_failures(values):
    got = group_advantages(values)
    assert got.dtype == torch.float64
    assert got.isfinite().all()
    failed = [v is None or math.isnan(v) for v in values]
    assert all(a == 0 for a, f in zip(got.tolist(), failed) if f)


def group(task: str, rewards: list[float | None], turn: int = 0) -> Group:
    answers = [candidate((1,), reward=r) for r in rewards]
    return Group(GroupKey(task, "planner", turn), "team", "", (0,), answers)


def test_credit_goes_by_group_and_not_by_position():
    groups = [group("a", [0, 1]), group("b", [5, 5]), group("a", [3, 1], turn=1)]
    expected = {
        (g.key, i): v
        for g in groups
        for i, v in enumerate(group_advantages([c.reward for c in g.candidates]).tolist())
    }
    random.Random(0).shuffle(groups)
    ATGRPO(num_candidates=2).assign_credit(rollouts_of(groups))
    got = {(g.key, i): c.advantage for g in groups for i, c in enumerate(g.candidates)}
    assert got == pytest.approx(expected)


def test_a_failure_in_one_group_changes_no_other_group():
    whole, broken = (
        [group("a", [0, 1, 2]), group("b", [0, 1, 5])],
        [group("a", [0, None, 2]), group("b", [0, 1, 5])],
    )
    for groups in (whole, broken):
        ATGRPO().assign_credit(rollouts_of(groups))
    assert [c.advantage for c in whole[1].candidates] == [c.advantage for c in broken[1].candidates]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [-1, 0, 1]),  # deviation 2
        ({"scale": "none"}, [-2, 0, 2]),
        ({"scale": "none", "baseline": "leave_one_out"}, [-3, 0, 3]),
        ({"baseline": "max"}, [-2, -1, 0]),
    ],
)
def test_at_grpo_compares_as_its_options_say(options, expected):
    groups = [group("a", [0, 2, 4])]
    ATGRPO(**options).assign_credit(rollouts_of(groups))
    assert [c.advantage for c in groups[0].candidates] == pytest.approx(expected)
    assert ATGRPO().trainable(groups) == groups  # though one candidate has no advantage


def test_flat_groups_are_left_out_of_loss_and_denominator_unless_kept():
    groups = [group("a", [1, 1]), group("b", [0, 1])]
    for keep, tokens in ((False, 2), (True, 4)):
        algorithm = ATGRPO(keep_flat_groups=keep)
        algorithm.assign_credit(rollouts_of(groups))
        assert algorithm.denominator(algorithm.trainable(groups)) == tokens


def test_clipping_stops_gains_beyond_the_range_and_never_stops_losses():
    ratio = torch.tensor([1.5, 1.5, 0.5, 0.5])
    advantage = torch.tensor([1.0, -1.0, 1.0, -1.0])
    loss = clipped_surrogate(ratio.log(), torch.zeros(4), advantage, 0.2, 0.2)
    # min(1.5, 1.2), min(-1.5, -1.2), min(0.5, 0.8), min(-0.5, -0.8), negated
    assert loss.tolist() == pytest.approx([-1.2, 1.5, -0.5, 0.8])
    assert clipped_share(ratio.log(), torch.zeros(4), advantage, 0.2, 0.2).tolist() == [1, 0, 0, 1]


def test_a_token_without_an_advantage_or_within_the_range_is_not_clipped():
    ratio = torch.tensor([1.5, 0.5])
    assert clipped_share(ratio.log(), torch.zeros(2), torch.zeros(2), 0.2, 0.2).tolist() == [0, 0]
    equal = torch.zeros(2)  # a ratio of 1 is at both ends of an empty range
    assert clipped_share(equal, equal, torch.tensor([1.0, -1.0]), 0.0, 0.0).tolist() == [0, 0]


def test_unequal_clipping_ranges():
    ratio = torch.tensor([1.5, 0.5])
    loss = clipped_surrogate(ratio.log(), torch.zeros(2), torch.tensor([1.0, -1.0]), 0.1, 0.4)
    assert loss.tolist() == pytest.approx([-1.4, 0.9])


def test_kl_estimate_is_zero_for_equals_and_unbiased():
    p, q = torch.tensor([0.5, 0.3, 0.2]).log(), torch.tensor([0.2, 0.3, 0.5]).log()
    assert kl_estimate(p, p).tolist() == [0, 0, 0]
    exact = float((p.exp() * (p - q)).sum())
    assert float((p.exp() * kl_estimate(p, q)).sum()) == pytest.approx(exact, abs=1e-6)


def bonus(sampled_entropy, **settings):
    """How much less the loss is than without the bonus, for one token with an entropy of 1 nat."""
    zero, one = torch.zeros(1), torch.ones(1)
    tokens = {"weight": zero, "count": one, "sequence": torch.zeros(1, dtype=torch.long)}
    batch = TokenBatch(zero, zero, zero, **tokens, entropy=one, sampled_entropy=sampled_entropy)
    return -float(ATGRPO(entropy_coef=0.2, **settings).regularizer(batch)[0])


def test_the_entropy_bonus_fades_towards_its_target():
    assert bonus(0.5) == pytest.approx(0.2)
    assert bonus(0.1, entropy_target=0.4) == pytest.approx(0.15)
    assert bonus(0.4, entropy_target=0.4) == bonus(2.0, entropy_target=0.4) == 0
