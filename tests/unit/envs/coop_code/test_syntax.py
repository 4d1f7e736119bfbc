"""The syntax tree decides: what is defined, and what is only passed on."""

import pytest

from teamtune.envs.coop_code.cooperation import adds_work
from teamtune.envs.coop_code.syntax import (
    given_of,
    join,
    preamble_of,
    returns_value,
    split_program,
)


def main(body: str) -> str:
    return "def f(x):\n" + "\n".join("    " + line for line in body.split("\n"))


@pytest.mark.parametrize(
    ("source", "defined"),
    [
        ("def aux(x):\n    return x", True),
        ("def aux(x):\n    if x:\n        return 1\n    return None", True),
        ("def aux(x):\n    yield x\n    return x", True),
        ("def aux(x):\n    yield x", True),
        (
            "def aux(x):\n    while True:\n        for d in x:\n            break\n        else:\n"
            "            break\n    return x",
            True,
        ),
        ("def aux(x):\n    print(x)", False),
        ("def aux(x):\n    return", False),
        ("def aux(x):\n    return None", False),
        ("def aux(x):\n    def inner():\n        return 1\n    inner()", False),
        ("def aux(x):\n    raise ValueError\n    return 1", False),
        ("def aux(x):\n    return 1\ndef aux(x):\n    pass", False),
        ("class C:\n    def aux(self):\n        return 1", False),
        ("def auxiliary(x):\n    return x", False),
        ("# def aux(x): return x", False),
        ("'def aux(x): return x'", False),
        ("def aux(x: return x", False),
        ("", False),
    ],
)
def test_a_function_counts_where_it_returns_something(source, defined):
    assert returns_value(source, "aux") is defined


@pytest.mark.parametrize(
    "body",
    [
        "return aux(x)",
        '"""Text."""\nreturn aux(x)',
        "y = aux(x)\nreturn y",
        "y = aux(x)\nz = y\nreturn z",
        "return (aux(x), 1)",
        "pass\nreturn aux(x, -1)",
        "if 1 == 1:\n    return aux(x)",
        "return aux(x)\nreturn sum(x)",
        "1 + 1\nreturn aux(x)",
        "_ = x + 0\nreturn aux(x)",
        "print(x * 2)\nreturn aux(x)",
        "if x is None:\n    pass\nreturn aux(x)",
        "if x is None:\n    y = 1\nreturn aux(x)",
        "for i in x:\n    pass\nreturn aux(x)",
        "r: dict[str, int] = aux(x)\nreturn r",
        "def g(y: int | None) -> list[int]:\n    return aux(y)\nreturn g(x)",
        "g = lambda: aux(x)\nreturn g()",
        "return (lambda *a: aux(*a))(x)",
        "raise ValueError\nreturn x + 1",
        "assert x > 0\nreturn aux(x)",
    ],
)
def test_thin_wrappers(body):
    assert not adds_work(main(body), "f")


@pytest.mark.parametrize(
    "body",
    [
        "return aux(x) + 1",
        "return aux(x)[0]",
        "return sorted(aux(x))",
        "if x:\n    return aux(x)\nreturn 0",
        "return aux(x) if x else 0",
        "for i in x:\n    y = aux(i)\nreturn y",
        "return [aux(i) for i in x]",
        "return not aux(x)",
        "y = []\nfor i in x:\n    y.append(aux(i))\nreturn y",
        "y = aux(x)\ny += 1\nreturn y",
        "y = {}\ny[0] = aux(x)\nreturn y",
        "y = [0]\nheappush(y, aux(x))\nreturn y",
        "if x < 0:\n    raise ValueError\nreturn aux(x)",
        "while x:\n    x = aux(x)\nreturn x",
        "try:\n    return aux(x)\nexcept ValueError:\n    return -x",
        "match x:\n    case [y]:\n        return aux(y)\nreturn aux(x)",
        "def g(i):\n    return aux(i) + 1\nreturn g(x)",
        "for i in x:\n    yield aux(i)",
        "a, b = aux(x), x * 2\nreturn b, a",
    ],
)
def test_work_of_ones_own(body):
    assert adds_work(main(body), "f")


def test_a_program_by_one_agent_is_parted_at_the_helper():
    program = "import math\ndef aux(x):\n    return math.sqrt(x)\ndef f(x):\n    return aux(x) + 1"
    helper, rest = split_program(f"```python\n{program}\n```")
    assert helper == "import math\ndef aux(x):\n    return math.sqrt(x)"
    assert rest == "def f(x):\n    return aux(x) + 1"
    assert split_program("def f(x):\n    return x") == ("", "def f(x):\n    return x")
    assert split_program("no program") == ("", "")


@pytest.mark.parametrize(
    "program",
    [
        "g = aux\n" + main("return g(x)"),
        "g = aux\nh = g\n" + main("return h(x)"),
        "g = partial(aux, 1)\n" + main("return g(x)"),
        "g = functools.partial(aux)\n" + main("return g(x)"),
        "g = lambda x: aux(x)\n" + main("return g(x)"),
        main("g = aux\nreturn g(x)"),
        main("g: object = aux\nreturn g(x)"),
        main("return partial(aux)(x)"),
    ],
)
def test_a_name_that_stands_for_the_helper_is_no_work(program):
    assert not adds_work(program, "f")


@pytest.mark.parametrize(
    "program",
    [
        "g = sorted\n" + main("return g(aux(x))"),
        "g = partial(sorted)\n" + main("return g(aux(x))"),
        "g = aux\ng = sorted\n" + main("return g(aux(x))"),
        "g = lambda x: aux(x) + 1\n" + main("return g(x)"),
        "from heapq import nlargest\n" + main("return nlargest(1, aux(x))"),
    ],
)
def test_a_name_that_stands_for_more_is_work(program):
    assert adds_work(program, "f")


def test_what_a_problem_gives_stays():
    prompt = "import math\n\n\ndef given(x):\n    return x\n\n\ndef f(x):\n    '''Text.'''\n"
    assert preamble_of(prompt, "f") == "import math\n\n\ndef given(x):\n    return x"
    assert given_of(prompt, "f") == "import math\n\n\ndef given(x):\n    return x"
    assert given_of("import math\ndef f(x):\n    'text'", "f") == ""
    assert given_of("def stub(x):\n    'text'\ndef f(x):\n    'text'", "f") == ""
    assert preamble_of("def f(x:", "f") == ""
    broken = "import math\n  import os\nfrom re import sub\ndef f(x: sub\n    import the rest\n"
    assert preamble_of(broken, "f") == "import math\nfrom re import sub"


@pytest.mark.parametrize(
    ("after", "defined"),
    [
        ("if __name__ == '__main__':\n    aux = aux(2)", True),
        ("from functools import cache, lru_cache\naux = cache(aux)", True),
        ("aux = lru_cache(None)(aux)", True),
        ("aux = aux(2)", False),
        ("aux = None", False),
        ("if True:\n    def aux(x): pass", False),
        ("for aux in [1]: pass", False),
        ("def g(aux):\n    aux = 1", True),
    ],
)
def test_the_last_meaning_of_a_name_holds(after, defined):
    assert returns_value(f"def aux(x):\n    return x\n{after}", "aux") is defined


def test_a_deep_function_still_returns():
    assert returns_value("def aux(x):\n    return " + "+".join(["1"] * 400), "aux")


def test_parting_keeps_comments_and_decorators():
    above = "# sums\n@cache\ndef aux(x):\n    return x  # all"
    below = "@cache\ndef f(x):\n    return aux(x)  # and back"
    assert split_program(f"{below}\n\n{above}") == (f"{below}\n\n{above}", "")
    assert split_program(f"{above}\n{below}\n# end") == (above, f"{below}\n# end")


def test_imports_from_the_future_go_first():
    future = "from __future__ import annotations"
    assert join(["import math", f"{future}\nx = 1", "", future]) == (
        f"{future}\n\nimport math\n\nx = 1\n"
    )
    assert join(["x = '__future__"]) == "x = '__future__\n"


def test_a_wrapper_of_a_wrapper_adds_nothing():
    wrapper = (
        "def g(x):\n    return aux(x)\n\n\ndef f(x: int | None) -> list[int]:\n    return g(x)"
    )
    assert not adds_work(wrapper, "f")
    assert adds_work(wrapper.replace("aux(x)", "aux(x) + x"), "f")
    assert adds_work(wrapper.replace("return g(x)", "return list(map(g, x))"), "f")
