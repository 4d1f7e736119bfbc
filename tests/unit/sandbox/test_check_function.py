"""HumanEval's check(candidate) becomes a list of asserts."""

import time

import pytest

from teamtune.sandbox import asserts_of_check

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


def test_straight_lines_and_what_they_need_but_no_loops():
    first, last = asserts_of_check(TEST, "f")
    assert first == "assert f(1) == 2, 'first'"
    assert last == "other = 3\nassert not f(other)"


def check(*lines):
    return "def check(c):\n" + "".join(f"    {line}\n" for line in lines)


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (
            ["a = [1]", "a.append(2)", "assert c(a) == 3"],
            ["a = [1]\na.append(2)\nassert f(a) == 3"],
        ),
        (["d = {}", "d['k'] = 1", "assert c(d) == 1"], ["d = {}\nd['k'] = 1\nassert f(d) == 1"]),
        (
            ["def t(x, y):", "    assert c(x) == y", "t(1, 2)", "assert c(1) == 2"],
            ["assert f(1) == 2"],
        ),
        (["for i in [1]:", "    assert c(i) == 2", "assert c(i) == 2"], ["assert f(i) == 2"]),
        (["if c(1) != 2:", "    raise AssertionError('x')", "assert c(3)"], ["assert f(3)"]),
        (
            ["import random", "random.seed(1)", "assert c(2) == 1"],
            ["import random\nrandom.seed(1)\nassert f(2) == 1"],
        ),
        (
            ["a = []", "for i in range(3):", "    a.append(i)", "assert c(a) == 3"],
            ["a = []\nfor i in range(3):\n    a.append(i)\nassert f(a) == 3"],
        ),
        (["assert (c(1) == 2, 'm')", "assert 1 == 1", "assert c(1) == 2"], ["assert f(1) == 2"]),
        (["b = 1", "b2 = 2", "assert c(b2) == 1"], ["b2 = 2\nassert f(b2) == 1"]),
        (["assert [g(2) for g in [c]] == [4]"], ["assert [g(2) for g in [f]] == [4]"]),
    ],
)
def test_what_a_test_takes_along(lines, found):
    assert asserts_of_check(check(*lines), "f") == found


def test_many_asserts_that_build_on_each_other_take_little_time_or_are_refused():
    steps = [(f"a{i} = a{i - 1}", f"assert c(a{i}) == 1") for i in range(200)]
    began = time.process_time()
    assert len(asserts_of_check(check(*sum(steps, ())), "f")) == 200
    steps = [(f"a{i} = a{i - 1}", f"assert c(a{i}) == 1") for i in range(2000)]
    with pytest.raises(ValueError, match="test of f"):
        asserts_of_check(check(*sum(steps, ())), "f")
    assert time.process_time() - began < 5.0


def test_they_run(sandbox):
    result = sandbox.run_tests_sync(
        "def f(x): return 2 if x == 1 else 0 if x == 3 else 9", asserts_of_check(TEST, "f")
    )
    assert (result.status, result.passed, result.total) == ("passed", 2, 2)


@pytest.mark.parametrize(
    "test",
    [
        "x = 1",
        "def check(a, b):\n    assert a",
        "def check(c):\n    pass",
        "def check(",
        "def check(c):\n    assert c(1) == '\0'",
        "def check(c):\n    assert True",
        "def check(c):\n    assert callable(c)",
        "def check(c):\n    assert c is not None",
        "import math\ndef check(c):\n    assert math.pi > 3",
        "X = 3\ndef check(c):\n    assert X == 3",
        "def check(c):\n    assert tuple(c(1)) == tuple(f(1))",
        "def check(c):\n    assert c(1) == " + "+".join(["1"] * 5000),
        "def check(c):\n    assert (c(1) == 2, 'm')",
        "def check(c):\n    for x in range(9):\n        assert c(x) == x",
        "def check(c):\n    assert c(1) == d(1)",
        "def near(g):\n    assert g(1) == 2\ndef check(c):\n    near(c)",
    ],
)
def test_other_shapes_are_errors_that_name_the_task(test):
    with pytest.raises(ValueError, match="test of f"):
        asserts_of_check(test, "f")
