"""The syntax tree decides: what is defined, what is really used, what is only passed on."""

import pytest

from teamtune.envs.coop_code.syntax import (
    adds_work,
    code_of,
    preamble_of,
    returns_value,
    split_program,
    uses_helper,
)


def main(body: str) -> str:
    return "def f(x):\n" + "\n".join("    " + line for line in body.split("\n"))


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("Sure!\n```python\ndef f():\n    return 1\n```\nDone.", "def f():\n    return 1"),
        ("```\nx = 1\n```\n```py\ndef f():\n    pass\n```", "def f():\n    pass"),
        ("```python\ndef f():\n    return 1", "def f():\n    return 1"),
        ("```\nx = 1\n```", "x = 1"),
        ("def f():\n    return 1\n", "def f():\n    return 1"),
        ("I would rather not.", ""),
        ("", ""),
        ("\x00", ""),
        ("```python\nnot python either\n```", "not python either"),
    ],
)
def test_the_program_in_an_answer(answer, code):
    assert code_of(answer) == code


@pytest.mark.parametrize(
    ("source", "defined"),
    [
        ("def aux(x):\n    return x", True),
        ("def aux(x):\n    if x:\n        return 1\n    return None", True),
        ("def aux(x):\n    yield x\n    return x", True),
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
        "return aux(x) + 1",
        "y = aux(x)\nreturn y",
        "if aux(x):\n    return 1\nreturn 2",
        "return [aux(i) for i in x]",
        "return list(map(aux, x))",
        "return sorted(x, key=aux)",
        "def inner(i):\n    return aux(i)\nreturn [inner(i) for i in x]",
        "while True:\n    return aux(x)",
        "x.extend(aux(x))\nreturn x",
        "a, b = aux(x)\nreturn b",
        "x[0] = aux(x)\nreturn x",
    ],
)
def test_results_that_are_used(body):
    assert uses_helper(main(body), "f")


@pytest.mark.parametrize(
    "body",
    [
        "return x + 1",
        "aux(x)\nreturn x",
        "y = aux(x)\nreturn x",
        "return x\nreturn aux(x)",
        "if False:\n    return aux(x)\nreturn x",
        "# aux(x)\nreturn 'aux(x)'",
        "aux = len\nreturn aux(x)",
        "def aux(y):\n    return y\nreturn aux(x)",
        "from math import floor as aux\nreturn aux(x)",
        "def inner(i):\n    return aux(i)\nreturn x",
        "return x.aux(1)",
        "return auxiliary(x)",
        "raise ValueError\nreturn aux(x)",
    ],
)
def test_results_that_are_not_used(body):
    assert not uses_helper(main(body), "f")


def test_the_helper_may_be_called_through_another_function():
    through = "def g(x):\n    return aux(x)\n\n\ndef f(x):\n    return g(x) + 1"
    assert uses_helper(through, "f")
    assert not uses_helper(through.replace("g(x) + 1", "x + 1"), "f")
    assert not uses_helper("def aux(x):\n    return x\n\n\ndef f(x):\n    return aux(x)", "f")
    assert not uses_helper("def g(x):\n    return aux(x)", "f")
    assert not uses_helper("def f(x:", "f")


def test_an_endless_round_of_calls_is_followed_once():
    assert uses_helper("def f(x):\n    return g(x)\ndef g(x):\n    return f(aux(x))", "f")


@pytest.mark.parametrize(
    "body",
    [
        "return aux(x)",
        '"""Text."""\nreturn aux(x)',
        "y = aux(x)\nreturn y",
        "y = aux(x)\nz = y\nreturn z",
        "return (aux(x), 1)",
        "pass\nreturn aux(x, -1)",
        "if True:\n    return aux(x)\nreturn x + 1",
        "if 1 == 1:\n    return aux(x)",
        "return aux(x)\nreturn sum(x)",
        "1 + 1\nreturn aux(x)",
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
    ],
)
def test_work_of_ones_own(body):
    assert adds_work(main(body), "f")


def test_a_program_by_one_agent_is_parted_at_the_helper():
    program = "import math\ndef aux(x):\n    return math.sqrt(x)\ndef f(x):\n    return aux(x) + 1"
    helper, rest = split_program(f"```python\n{program}\n```")
    assert helper == "import math\n\ndef aux(x):\n    return math.sqrt(x)"
    assert rest == "import math\n\ndef f(x):\n    return aux(x) + 1"
    assert split_program("def f(x):\n    return x") == ("", "def f(x):\n    return x")
    assert split_program("no program") == ("", "")


def test_what_a_problem_gives_stays():
    prompt = "import math\n\n\ndef given(x):\n    return x\n\n\ndef f(x):\n    '''Text.'''\n"
    assert preamble_of(prompt, "f") == "import math\n\ndef given(x):\n    return x"
    assert preamble_of("def f(x:", "f") == ""
