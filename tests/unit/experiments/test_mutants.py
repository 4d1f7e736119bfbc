"""The maker of mutants makes the changes that it says, and none that changes nothing."""

import pytest
from experiments.benchmarks.mutants import CORE, ROOT, core, mutants


def changed(source: str) -> list[str]:
    return [m.source for m in mutants("file.py", source)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b", ["x = (a <= b)"]),
        ("x = a is not b == c", ["x = (a is b == c)", "x = (a is not b != c)"]),
        ("x = a + b * c", ["x = (a - b * c)", "x = a + (b / c)"]),
        ("x = a and not b", ["x = (a or not b)", "x = a and (b)"]),
        ("x = -a if b else c", ["x = -a if (not b) else c", "x = (a) if b else c"]),
        ("if a == b:\n    c += d", ["if (a != b):\n    c += d"] + 2 * ["…"]),
        ("x = 3", ["x = (4)", "x = (0)"]),
        ("x = 0.0", ["x = (1.0)"]),
        ("x = True", ["x = (False)"]),
        ("x = min(a, b.any())", ["x = (max)(a, b.any())", "x = min(a, (b.all)())"]),
        ("x = f(a, b=c, **d)", ["x = (f(a, **d))", "x = (f(a, b=c))"]),
        ("f(a)", ["pass"]),
        ("def f() -> bool:\n    return a", ["def f() -> bool:\n    return (not a)"]),
        ("def f() -> float:\n    return a", ["def f() -> float:\n    return (a + 1)"]),
        ('"""Says 1 + 1."""\nx: Literal[1] = a', []),
        ("raise E(f'{1 + 1} {a < b}')", []),
        ("if TYPE_CHECKING:\n    import a", []),
        ("@dataclass(frozen=True)\nclass A:\n    x: int", []),
    ],
)
def test_a_line_becomes_its_neighbours(source, expected):
    found = changed(source)
    assert len(found) == len(expected)
    assert all(e in ("…", f) for e, f in zip(expected, found))


def test_a_change_that_reads_like_the_original_is_no_mutant():
    assert changed("x = 0") == ["x = (1)"] and changed("x = 'a'\ny = z") == []
    assert changed("return a < b if a < b else c").count("return (a <= b) if a < b else c") == 1


def test_a_mutant_says_where_it_is_and_what_was_changed():
    (one,) = mutants("a.py", "ä = 'ö'\nx = long_name_of_a_function(first_argument, k=é)\n")
    assert one.source == "ä = 'ö'\nx = (long_name_of_a_function(first_argument))\n"
    assert str(one) == "a.py:2  _function(first_argument, k=é) -> _function(first_argument)"


@pytest.mark.parametrize("place", CORE)
def test_every_place_of_the_core_has_mutants_and_tests(place):
    mutant, tests = next(core([place]))
    assert mutant.file.startswith(place) and tests == CORE[place]
    assert all((ROOT / "tests/unit" / test).exists() for test in tests.split())
