"""Metrics of teams against values worked out by hand, and against brute force."""

import itertools
import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamtune.experience.metrics import GenerationCost, JointReturn, PassAtK, pass_at_k

SHARED = Path(__file__).parents[4] / "shared/cases/pass_at_k.json"


@pytest.mark.parametrize(
    ("n", "c", "k", "value"),
    [
        (4, 1, 4, 1.0),
        (4, 1, 1, 0.25),
        (10, 3, 5, 1 - 21 / 252),
        (10, 0, 5, 0.0),
        (5, 5, 1, 1.0),
        (3, 1, 2, 2 / 3),
    ],
)
def test_pass_at_k(n, c, k, value):
    assert pass_at_k(n, c, k) == pytest.approx(value, abs=1e-12)


@pytest.mark.skipif(not SHARED.exists(), reason="the shared cases are not here")
def test_pass_at_k_of_the_shared_cases():
    for case in json.loads(SHARED.read_text())["cases"]:
        assert pass_at_k(case["n"], case["c"], case["k"]) == pytest.approx(case["value"], abs=1e-6)


@given(
    st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n)))
)
def test_pass_at_k_is_the_share_of_draws_with_a_pass(case):
    n, c, k = case
    draws = list(itertools.combinations([1] * c + [0] * (n - c), k))
    assert pass_at_k(n, c, k) == pytest.approx(float(Fraction(sum(map(any, draws)), len(draws))))


def test_pass_at_k_of_many_samples_does_not_overflow():
    assert pass_at_k(100_000, 1, 50_000) == 0.5


@pytest.mark.parametrize(
    ("n", "c", "k", "message"),
    [
        (4, 1, 5, "k: got 5, allowed: 1 to n = 4"),
        (4, 1, 0, "k: got 0"),
        (0, 0, 1, "k: got 1"),
        (4, 5, 1, "c: got 5"),
        (4, -1, 1, "c: got -1"),
    ],
)
def test_pass_at_k_refuses_impossible_counts(n, c, k, message):
    with pytest.raises(ValueError, match=message):
        pass_at_k(n, c, k)


def test_pass_at_k_is_a_mean_over_tasks_not_over_samples():
    metric = PassAtK((1, 2))
    metric.update([[True, False, False, False]])  # 1/4 and 1 - C(3,2)/C(4,2) = 1/2
    metric.update([[True, True], [False, False]])  # 1 and 1, 0 and 0
    assert metric.compute() == pytest.approx({"pass_at_1": 1.25 / 3, "pass_at_2": 1.5 / 3})
    metric.reset()
    assert metric.compute() == {}


CODE = {"helper": 0.4, "entry": 0.6, "syntax": 0.5, "tests": 1.0, "calls": 0.5, "matters": 1.0}
GROUPS = {"cooperation": ("calls", "matters"), "test_pass_ratio": ("tests",)}


def test_levels_groups_and_the_share_of_the_maximum():
    metric = JointReturn(CODE, GROUPS)
    best = {**CODE, "total": 4.0}
    metric.update([best])
    assert metric.compute()["return_share"] == 1 and metric.compute()["cooperation"] == 1
    metric.update([{**dict.fromkeys(CODE, 0.0), "helper": 0.4, "tests": 0.5, "calls": 0.5}])
    got = metric.compute()
    assert got["level_helper"] == pytest.approx(0.4)
    assert got["level_matters"] == pytest.approx(0.5)
    assert got["test_pass_ratio"] == pytest.approx(0.75)
    assert got["cooperation"] == pytest.approx((0.5 + 0.5) / 1.5)
    assert got["total"] == pytest.approx((4.0 + 1.4) / 2)
    assert got["return_share"] == pytest.approx((4.0 + 1.4) / 8)
    metric.reset()
    assert metric.compute() == {}


def test_sums_are_exact_to_double_precision():
    levels = JointReturn({"a": 1.0, "b": 0.0})  # a level may be out of reach
    levels.update([{"a": 0.1, "b": 0.0}])
    assert levels.compute()["total"] == pytest.approx(0.1, abs=1e-14)
    passed = PassAtK()
    passed.update([[True, False, False]])
    assert passed.compute() == {"pass_at_1": pytest.approx(1 / 3, abs=1e-14)}
    cost = GenerationCost()
    cost.update(3, 0.1, 1)
    assert cost.compute()["seconds_per_task"] == pytest.approx(0.1, abs=1e-14)


def test_levels_add_up_over_batches():
    one, two = JointReturn(CODE), JointReturn(CODE)
    rows = [{name: maximum * i / 4 for name, maximum in CODE.items()} for i in range(5)]
    one.update(rows)
    two.update(rows[:1])
    two.update(rows[1:])
    two.update([])
    assert one.compute() == pytest.approx(two.compute())
    assert one.compute()["return_share"] == pytest.approx(0.5)


def test_a_missing_level_is_an_error_and_no_silent_zero():
    with pytest.raises(KeyError, match="entry"):
        JointReturn(CODE).update([{"helper": 0.4}])


@pytest.mark.parametrize(
    ("maxima", "groups"),
    [
        (CODE, {"cooperation": ("call",)}),
        (CODE, {"cooperation": ()}),
        (CODE, {"tests": ("tests",)}),
        (CODE, {"cooperation": ("calls", "matter")}),
        ({"a": 0.0, "b": 1.0}, {"nothing": ("a",)}),
        ({"a": 0.0}, None),
        ({"a": -1.0, "b": 2.0}, None),
        ({"a": float("nan")}, None),
    ],
)
def test_groups_and_maxima_that_make_no_sense_are_refused(maxima, groups):
    with pytest.raises(ValueError, match="allowed"):
        JointReturn(maxima, groups)


def test_cost_per_task():
    cost = GenerationCost()
    assert cost.compute() == {}
    cost.update(tokens=300, seconds=2.0, tasks=3)
    cost.update(tokens=100, seconds=3.0, tasks=1)
    assert cost.compute() == pytest.approx(
        {
            "tasks": 4,
            "tokens": 400,
            "tokens_per_task": 100,
            "seconds_per_task": 1.25,
            "tokens_per_second": 80,
        }
    )


def test_metrics_have_names_that_mlflow_keeps():
    metric = JointReturn(CODE, GROUPS)
    metric.update([CODE])
    passed = PassAtK((1, 10))
    passed.update([[True] * 10])
    for name in [*metric.compute(), *passed.compute()]:
        assert all(c.isalnum() or c in "_/-" for c in name)
