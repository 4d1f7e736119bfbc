"""Success rates and their intervals."""

import pytest

from teamtune.experience.metrics import SuccessRate, wilson_interval


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        (960, 1000, 0.9460, 0.9705),  # (0.96 + 0.00192 ± 1.96 sqrt(0.0000384 + 9.6e-7)) / 1.00384
        (0, 10, 0.0, 0.2775),
        (10, 10, 0.7225, 1.0),
        (5, 10, 0.2366, 0.7634),
        (0, 0, 0.0, 1.0),
    ],
)
def test_wilson_intervals(successes, trials, low, high):
    assert wilson_interval(successes, trials) == pytest.approx((low, high), abs=1e-4)


def test_rates_add_up_over_batches():
    rate = SuccessRate()
    rate.update([True, False])
    rate.update([True])
    rate.update([])
    got = rate.compute()
    assert got["success"] == pytest.approx(2 / 3)
    assert got["episodes"] == 3
    rate.reset()
    assert rate.compute() == {"success": 0, "success_low": 0, "success_high": 1, "episodes": 0}


def test_rates_of_two_ranks_add_up():
    rate, other = SuccessRate(), SuccessRate()
    rate.update([True])
    other.update([False, True])
    rate.merge_state(other)
    got = rate.compute()
    assert (got["success"], got["episodes"]) == (pytest.approx(2 / 3), 3)
