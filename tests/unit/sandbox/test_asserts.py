"""Which asserts come apart, and which stay whole because the value alone would not decide."""

import time
from decimal import Decimal
from fractions import Fraction

import pytest

from teamtune.sandbox.asserts import take_apart
from teamtune.sandbox.judges import Comparison, IsClose, Near, Truth

ONE = Comparison("Eq", 1)


def only_part(source):
    taken = take_apart(source)
    assert taken is not None and len(taken.parts) == 1
    return taken.parts[0].source, taken.parts[0].judge


@pytest.mark.parametrize(
    ("source", "shipped", "judge"),
    [
        ("assert f(1, 2) == 3", "f(1, 2)", Comparison("Eq", 3)),
        ("assert 3 == f(1)", "f(1)", Comparison("Eq", 3, expected_first=True)),
        ("assert f() == (1, {'a': [2.5]}, {4})", "f()", Comparison("Eq", (1, {"a": [2.5]}, {4}))),
        ("assert f(3) == 2 ** 3 + 1", "f(3)", Comparison("Eq", 9)),
        ("assert f(3) == tuple([1, 2] * 2)", "f(3)", Comparison("Eq", (1, 2, 1, 2))),
        ("assert tuple(f(3)) == (1,)", "tuple(f(3))", Comparison("Eq", (1,))),
        ("assert sorted(f(3), reverse=True)[0] == 1", "sorted(f(3), reverse=True)[0]", ONE),
        ("assert [f(x) for x in g()] == [0, 1]", "[f(x) for x in g()]", Comparison("Eq", [0, 1])),
        ("assert Solution().f(1) == 2, 'message'", "Solution().f(1)", Comparison("Eq", 2)),
        ("assert sum(10, 15) == 25", "sum(10, 15)", Comparison("Eq", 25)),
        ("assert f(1) is None", "f(1)", Comparison("Is", None)),
        ("assert f(1) != 4", "f(1)", Comparison("NotEq", 4)),
        ("assert f(1) in [1, 2]", "f(1)", Comparison("In", [1, 2])),
        ("assert 5 in f(1)", "f(1)", Comparison("In", 5, expected_first=True)),
        ("assert f(1) <= 4.5", "f(1)", Comparison("LtE", 4.5)),
        ("assert f(1)", "not not (f(1))", Truth(True)),
        ("assert not f(1)", "not not (f(1))", Truth(False)),
        ("assert abs(f(1) - 2 / 4) < 1e-6", "f(1)", Near(0.5, 1e-6, "Lt")),
        ("assert math.fabs(2 - f(1)) <= 0.1", "f(1)", Near(2, 0.1, "LtE")),
        ("assert math.isclose(f(1), 2.5, abs_tol=0.1)", "f(1)", IsClose(2.5, abs_tol=0.1)),
        ("x = [1]\nassert f(x) == 1", "f(x)", Comparison("Eq", 1)),
        ("assert (f(1) == 1) == True", "f(1)", ONE),
        ("assert (not f(1)) is True", "not not (f(1))", Truth(False)),
        ("assert f(1) == Fraction(1, -2)", "f(1)", Comparison("Eq", Fraction(-1, 2))),
        ("assert f(1) == fractions.Fraction('1/2')", "f(1)", Comparison("Eq", Fraction(1, 2))),
        ("assert f(1) == -Decimal('0.10')", "f(1)", Comparison("Eq", Decimal("-0.10"))),
        ("assert f(1) == bytearray(b'ab')", "f(1)", Comparison("Eq", bytearray(b"ab"))),
        ("assert f(1) == {1: 2}.keys()", "f(1)", Comparison("Eq", {1})),
        ("assert f(1) == {1: 2}.items()", "f(1)", Comparison("Eq", {(1, 2)})),
    ],
)  # fmt: skip
def test_an_assert_comes_apart(source, shipped, judge):
    assert only_part(source) == (shipped, judge)


def test_what_is_expected_does_not_reach_the_program():
    taken = take_apart("assert f(1) == 123456 and abs(g(2) - 7.5) < 0.001")
    assert [part.source for part in taken.parts] == ["f(1)", "g(2)"]
    assert not taken.prelude


@pytest.mark.parametrize(
    "source",
    [
        "assert f(1) - 3 == 0",
        "assert f(1) == 3 or f(1) == 4",
        "assert isinstance(f(1), int)",
        "assert isinstance(f(1), int) == True",
        "assert all(f(x) == y for x, y in [(1, 2)])",
        "assert f(1).startswith('a')",
        "assert f(1).__eq__(3) == True",
        "assert bool(f(1)) == True",
        "assert f(1) == g(1)",
        "assert f(1) == expected",
        "assert 0 <= f(1) <= 3",
        "assert f(1) is 3",
        "def near(a, b): return a == b\nassert near(f(1), 3)",
        "import math as m\nassert m(f(1), 3)",
        "n = int(f(1) == 3)\nassert n == 1",
        "for x in (1, 2):\n    assert f(x) == x",
        "assert f(1) == 10 ** 10 ** 10",
        "assert f(1) == [[0] * 99999] * 99999",
        "assert f(1) == '%999999999d' % 1",
        "f(1)",
        "assert (",
        "assert f(1) == '\0'",
        "assert " + "-" * 5000 + "f(1) == 1",
        "assert f(1) == " + "1+" * 5000 + "1",
        "",
    ],
)
def test_what_the_value_would_not_decide_does_not_come_apart(source):
    assert take_apart(source) is None


@pytest.mark.parametrize(
    "expected",
    [
        "[0] * 99999 " + "* 1 " * 900,
        "+".join(["'" + "x" * 100 + "'"] * 5000),
        "list(" * 90 + "[0] * 99999" + ")" * 90,
        "[" * 90 + "[0] * 99999" + "]" * 90,
        "{" + ",".join(str(n * (2**61 - 1)) for n in range(5000)) + "}",
        "Fraction('1e999999999')",
        "int(Decimal('1e999999999'))",
        "Fraction(1, 3) ** 10 ** 9",
        "bytearray(10 ** 12)",
        "-" * 80_000 + "1",
        "(" * 200_000,
        "1" * 1_000_000,
    ],
    ids=range(12),
)
def test_taking_an_assert_apart_takes_time_in_proportion_to_its_length(expected):
    began = time.process_time()
    take_apart(f"assert f(1) == {expected}")
    take_apart(f"assert list(f(1)) in {expected}")
    assert time.process_time() - began < 2.0


def test_a_byte_order_mark_is_no_syntax_error():
    assert only_part("\ufeffassert f(1) == 1") == ("f(1)", ONE)
