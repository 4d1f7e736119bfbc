"""HumanEval's check(candidate) becomes a list of asserts."""

import pytest

from teamtune.envs.sandbox import asserts_of_check

TEST = """
METADATA = {"author": "x"}
import math

def poly(xs, x):
    return sum(c * math.pow(x, i) for i, c in enumerate(xs))

def check(candidate):
    assert True, "trivial"
    assert candidate(1) == 2, "first"
    import random
    rng = random.Random(42)
    other = 3
    for _ in range(3):
        assert candidate(rng.randint(0, 9)) > poly([1], 2)
    assert not candidate(other)
"""


def test_straight_lines_loops_and_what_they_need():
    first, loop, last = asserts_of_check(TEST, "f")
    assert first == "assert f(1) == 2, 'first'"
    assert last == "other = 3\nassert not f(other)"
    assert loop.startswith("import math\ndef poly(xs, x):")
    assert "rng = random.Random(42)" in loop and "other" not in loop
    assert "assert f(rng.randint(0, 9)) > poly([1], 2)" in loop


def test_they_run(sandbox):
    result = sandbox.run_tests_sync(
        "def f(x): return 2 if x == 1 else 0 if x == 3 else 9", asserts_of_check(TEST, "f")
    )
    assert (result.status, result.passed, result.total) == ("passed", 3, 3)
    assert result.unprotected == (1,)


@pytest.mark.parametrize(
    "test", ["x = 1", "def check(a, b):\n    assert a", "def check(c):\n    pass", "def check("]
)
def test_other_shapes_are_errors_that_name_the_task(test):
    with pytest.raises(ValueError, match="test of f"):
        asserts_of_check(test, "f")
