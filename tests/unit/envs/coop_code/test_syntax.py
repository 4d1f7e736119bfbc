"""The syntax tree decides: what is defined, what is really used, what is only passed on."""

import pytest

from teamtune.envs.coop_code.syntax import (
    adds_work,
    code_of,
    given_of,
    join,
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
    assert helper == "import math\ndef aux(x):\n    return math.sqrt(x)"
    assert rest == "def f(x):\n    return aux(x) + 1"
    assert split_program("def f(x):\n    return x") == ("", "def f(x):\n    return x")
    assert split_program("no program") == ("", "")


def test_what_a_problem_gives_stays():
    prompt = "import math\n\n\ndef given(x):\n    return x\n\n\ndef f(x):\n    '''Text.'''\n"
    assert preamble_of(prompt, "f") == "import math\n\n\ndef given(x):\n    return x"
    assert given_of(prompt, "f") == "import math\ndef given(x):\n    return x"
    assert given_of("import math\ndef f(x):\n    'text'", "f") == ""
    assert given_of("def stub(x):\n    'text'\ndef f(x):\n    'text'", "f") == ""
    assert preamble_of("def f(x:", "f") == ""


F = "def f():\n    return 1"
BLOCK = f"```python\n{F}\n```"


@pytest.mark.parametrize(
    "answer",
    [
        "Ex:\n```text\nf(1)\n```\nCode:\n" + BLOCK,
        "```text\n" + F + "\n```",
        "```bash\npip\n```\n\n" + BLOCK + "\n",
        "1. Code:\n   ```python\n   def f():\n       return 1\n   ```",
        "```Python 3\n" + F + "\n```",
        "```{python}\n" + F + "\n```",
        "~~~python\n" + F + "\n~~~",
        "```python\nprint(f())\n```\n" + BLOCK,
        "```python\nclass A:\n    def g(self): pass\n```\n" + BLOCK,
        "```python\nasync def g(): pass\n```\n" + BLOCK,
        "```python\ndef f(:\n```\n" + BLOCK,
        "Sure! " + BLOCK,
        BLOCK.replace("\n", "\r\n"),
        "Sure:\n\n```python\n" + F,
    ],
)
def test_fences_of_all_kinds(answer):
    assert code_of(answer) == F


def test_a_block_without_a_function_is_the_last_choice():
    assert code_of("```python\nx =\n```\n```python\nx = 1\n```") == "x = 1"
    assert code_of("```python\ndef f(:\n```\n```python\nx = 1\n```") == "def f(:"
    assert code_of("`" * 5000) == ""
    fence_inside = 'def f():\n    """\n    ```\n    x\n    ```\n    """'
    assert code_of(fence_inside) == fence_inside


@pytest.mark.parametrize(
    ("after", "defined"),
    [
        ("aux = None", False),
        ("if True:\n    def aux(x): pass", False),
        ("for aux in [1]: pass", False),
        ("def g():\n    global aux\n    aux = 1", False),
        ("def g(aux):\n    aux = 1", True),
    ],
)
def test_the_last_meaning_of_a_name_holds(after, defined):
    assert returns_value(f"def aux(x):\n    return x\n{after}", "aux") is defined


def test_a_deep_function_still_returns():
    assert returns_value("def aux(x):\n    return " + "+".join(["1"] * 400), "aux")


@pytest.mark.parametrize(
    "program",
    [
        "{}\nf = lambda x: x * 2",
        "{}\ndef g(x):\n    return x * 2\nfor f in [g]:\n    pass",
        "{}\nif True:\n    def f(x):\n        return x * 2",
        "def real(g):\n    return lambda x: x * 2\n@real\n{}",
        "def cache(g):\n    return lambda x: x * 2\n@cache\n{}",
        "cache = lambda g: lambda x: x * 2\n@cache\n{}",
    ],
)
def test_another_function_in_the_place_of_the_entry_point(program):
    assert not uses_helper(program.format("def f(x):\n    return aux(x) + x"), "f")


@pytest.mark.parametrize("decorator", ["functools.cache", "lru_cache", "lru_cache(maxsize=None)"])
def test_a_cache_does_not_replace_the_entry_point(decorator):
    program = f"import functools\nfrom functools import lru_cache\n@{decorator}\n"
    program += "def f(x):\n    return aux(x) + f(x - 1)"
    assert uses_helper(program, "f") and adds_work(program, "f")


def test_parting_keeps_comments_and_decorators():
    above = "# sums\n@cache\ndef aux(x):\n    return x  # all"
    below = "@cache\ndef f(x):\n    return aux(x)  # and back"
    assert split_program(f"{below}\n\n{above}") == (above, below)
    assert split_program(f"{above}\n{below}\n# end") == (above, f"{below}\n# end")


def test_imports_from_the_future_go_first():
    future = "from __future__ import annotations"
    assert join(["import math", f"{future}\nx = 1", "", f"{future}; y = 2"]) == (
        f"{future}\n\nimport math\n\npass\nx = 1\n\npass; y = 2\n"
    )
    assert join(["x = '__future__"]) == "x = '__future__\n"


def test_a_wrapper_of_a_wrapper_adds_nothing():
    wrapper = (
        "def g(x):\n    return aux(x)\n\n\ndef f(x: int | None) -> list[int]:\n    return g(x)"
    )
    assert uses_helper(wrapper, "f") and not adds_work(wrapper, "f")
    assert adds_work(wrapper.replace("aux(x)", "aux(x) + x"), "f")
    assert adds_work(wrapper.replace("return g(x)", "return list(map(g, x))"), "f")
