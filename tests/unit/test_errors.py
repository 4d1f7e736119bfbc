"""Values out of their range are told by key, value and what is allowed."""

import math

import pytest

from teamtune.errors import ConfigError, at_least, one_of


def test_values_in_range_pass():
    at_least(1, a=1, b=2.5, c=None)
    one_of(("x", "y"), a="x", b="y")


@pytest.mark.parametrize("value", [0, -1.5, math.nan, math.inf])
def test_too_small_and_not_finite_values_are_told(value):
    with pytest.raises(ConfigError) as told:
        at_least(1, "model.", epochs=1, steps=value)
    assert str(told.value) == f"model.steps: got {value}, allowed: 1 or more"


def test_unknown_choices_are_told():
    with pytest.raises(ConfigError, match="^how: got 'z', allowed: x, y$"):
        one_of(("x", "y"), how="z")
