"""The helper is used where a test that holds would fail if it returned something else."""

import asyncio

import pytest

from teamtune.envs.coop_code import CoopCode
from teamtune.sandbox import Sandbox
from teamtune.tasks import Task

TEST = "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(3) == 6\n"
TASK = Task("twice", {"prompt": "def f(n):\n", "entry_point": "f", "test": TEST})
HELPER = "def aux(n):\n    return n"


@pytest.fixture(scope="module")
def env():
    env = CoopCode(sandbox=Sandbox(workers=1))
    yield env
    env.sandbox.close()


def levels(env, main, helper=HELPER):
    return asyncio.run(env.joint_reward(TASK, helper, main))


def f(body: str) -> str:
    return "def f(n):\n" + "\n".join("    " + line for line in body.split("\n"))


@pytest.mark.parametrize(
    "main",
    [
        f("return aux(n) * 2"),
        f("y = aux(n)\nreturn y + n"),
        f("return sum(map(aux, [n, n]))"),
        f("def inner(i):\n    return aux(i)\nreturn inner(n) * 2"),
        f("x = []\nx.extend([aux(n), n])\nreturn sum(x)"),
        f("g = aux\nreturn g(n) * 2"),
        f("class C:\n    def m(self):\n        return aux(n)\nreturn C().m() * 2"),
        f("while True:\n    for d in range(2):\n        pass\n    else:\n        break\n"
          "return aux(n) * 2"),
        f("try:\n    x = aux(n)\n    int('a')\nexcept ValueError:\n    return x * 2"),
        f("return n * 2 if aux(n) > 0 else aux(n)"),
        "from math import *\n" + f("return aux(n) * 2"),
        "def g(n):\n    return aux(n)\n" + f("return g(n) + n"),
        "import functools\n@functools.cache\n" + f("return aux(n) * 2"),
        "class C:\n    def m(self, n):\n        return aux(n) * 2\n" + f("return C().m(n)"),
        f("d = {}\nd.setdefault(0, []).append(aux(n))\nreturn d[0][0] * 2"),
        f("t = 0\ndef add(k):\n    nonlocal t\n    t += aux(k)\nadd(n)\nadd(n)\nreturn t"),
        f("r = []\ndef walk(k):\n    r.append(aux(k) * 2)\nwalk(n)\nreturn r[0]"),
        f("a = [[n]]\nfor row in a:\n    row[0] = aux(row[0]) * 2\nreturn a[0][0]"),
        f("if (y := aux(n) * 2):\n    pass\nreturn y"),
        f("a = [0] * 99\ndel a[aux(n):]\nreturn len(a) * 2"),
        "g = aux\n" + f("return g(n) * 2"),
        "g: object = aux\nh = g\n" + f("return h(n) * 2"),
        "from functools import partial\ng = partial(aux)\n" + f("return g(n) * 2"),
        "from functools import cache\ng = cache(aux)\ng = cache(g)\n" + f("return g(n) * 2"),
        "g = lambda n: aux(n) * 2\n" + f("return g(n)"),
    ],
)  # fmt: skip
def test_a_helper_that_is_used(env, main):
    assert levels(env, main)["total"] == 4.0


@pytest.mark.parametrize(
    "main",
    [
        f("return n * 2"),
        f("aux(n)\nreturn n * 2"),
        f("aux(n) + 1\nreturn n * 2"),
        f("y = aux(n)\nreturn n * 2"),
        f("return n * 2 + 0 * aux(n)"),
        f("any([aux(n)])\nreturn n * 2"),
        f("d = {}\nd[0] = aux(n)\nreturn n * 2"),
        f("f.c = aux(n)\nreturn n * 2"),
        f("for _ in [aux(n)]:\n    break\nreturn n * 2"),
        f("r, _ = n * 2, aux(n)\nreturn r"),
        f("if aux(n):\n    return n * 2\nreturn n * 2"),
        f("print(aux(n))\nreturn n * 2"),
        f("return n * 2\nreturn aux(n)"),
        f("# aux(n)\nreturn n * 2 if 'aux(n)' else 0"),
        f("def aux(n):\n    return n\nreturn aux(n) * 2"),
        f("from math import floor as aux\nreturn aux(n) * 2"),
        "def aux(n):\n    return n\n" + f("return aux(n) * 2"),
        "def real(g):\n    return lambda n: n * 2\n@real\n" + f("return aux(n) + n"),
        "g = aux\n" + f("g(n)\nreturn n * 2"),
        "g = aux\ng = lambda n: n\n" + f("return g(n) * 2"),
        "g = [1][aux(1) - 1]\n" + f("g = 2\nreturn n * g"),
        "g = [1][aux(1) - 1]\n" + f("return sum(g for g in (n, n))"),
        "g = [1][aux(1) - 1]\ng = 2\n" + f("return n * g"),
        "g = [1][aux(1) - 1]\n" + f("def inner(g):\n    return g\nreturn inner(n) * 2"),
        "aux = 2\n" + f("return n * aux"),
    ],
)
def test_a_helper_that_is_not(env, main):
    assert levels(env, main) == pytest.approx(
        {"helper": 0.4, "entry_point": 0.6, "syntax": 0.5, "tests": 1.0, "total": 2.5}
        | dict.fromkeys(("calls_helper", "adds_work"), 0.0)
    )


@pytest.mark.parametrize(
    ("value", "back"),
    [
        ("n > 2", "n * 2 if x == (n > 2) else 0"),
        ("str(n)", "int(x) * 2"),
        ("bytes(n)", "len(x) * 2"),
        ("[n]", "x[-1] * 2 * len(x)"),
        ("(n,)", "sum(x) * 2"),
        ("{n}", "sum(x) * 2"),
        ("{'x': n}", "x['x'] * 2"),
        ("iter([n])", "next(x) * 2"),
        ("n * 1j", "x.imag * 2 if x.real == 0 else 0"),
        ("None if n else 1", "n * 2 if x is None else 0"),
        ("range(n)", "sum(x) * 4"),
        ("lambda k: k + n", "x(n)"),
    ],
)
def test_values_of_every_kind(env, value, back):
    helper = f"def aux(n):\n    return {value}"
    assert levels(env, f(f"x = aux(n)\nreturn {back}"), helper)["calls_helper"] == 0.5
    assert levels(env, f("x = aux(n)\nreturn n * 2"), helper)["calls_helper"] == 0


@pytest.mark.parametrize(
    ("touch", "value"),
    [
        ("a, b = aux(n)", "(n, n)"),
        ("x = aux(n)[0]", "[n]"),
        ("x = aux(n)['k']", "{'k': n}"),
        ("x = int(aux(n))", "str(n)"),
        ("x = list(aux(n))", "range(n)"),
        ("x = aux(n).real", "n"),
        ("x = aux(n).n", "type('C', (), {'n': n})"),
        ("if aux.__name__ != 'aux':\n    return None", "n"),
    ],
)
def test_touching_what_it_returns_is_no_use_of_it(env, touch, value):
    helper = f"def aux(n):\n    return {value}"
    assert levels(env, f(f"{touch}\nreturn n * 2"), helper)["calls_helper"] == 0


@pytest.mark.parametrize(
    ("value", "main"),
    [
        ("n", "return n * 2 if aux(n) else None"),
        ("-n", "return n * 2 if aux(n) < 0 else None"),
        ("n", "return n * 2 if aux(n) < 10 else None"),
        ("n", "return n * 2 if aux(n) > 0 else None"),
        ("2 * n", "return n * 2 if aux(n) % 2 == 0 else None"),
    ],
)
def test_a_condition_on_the_helper_turns_though_all_tests_are_on_one_side(env, value, main):
    helper = f"def aux(n):\n    return {value}"
    assert levels(env, f(main), helper)["total"] == 4.0


def test_two_calls_put_together_are_no_thin_wrapper(env):
    test = "def check(c):\n    assert c(2) == (2, 3)\n"
    task = Task("pair", {"prompt": "def f(n):\n", "entry_point": "f", "test": test})
    helper = "def aux(n, k):\n    return n + k"
    both = f("return aux(n, 0), aux(n, 1)")
    assert asyncio.run(env.joint_reward(task, helper, both))["total"] == 4.0
    assert levels(env, f("return aux(n)"), "def aux(n):\n    return n * 2")["total"] == 3.0


def test_only_tests_that_hold_tell(env):
    assert levels(env, f("return 4 if n == 2 else aux(n)"))["calls_helper"] == 0
    assert levels(env, f("return aux(n) + 2"))["total"] == 0.4 + 0.6 + 0.5 + 0.5 + 0.5 + 1.0
