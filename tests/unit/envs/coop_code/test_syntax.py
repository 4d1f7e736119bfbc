"""The syntax tree decides: what is defined, and what is only passed on."""

import pytest

from teamtune.envs.coop_code.cooperation import adds_work
from teamtune.envs.coop_code.syntax import (
    code_of,
    given_of,
    join,
    preamble_of,
    returns_value,
    split_program,
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
        ("Sorry", ""),
        ("OK\nDone", ""),
        ("Answer: none", ""),
        ("f(1)", ""),
        ("import math", "import math"),
        ("if x:\n    y = 1", "if x:\n    y = 1"),
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
        "if True:\n    return aux(x)\nreturn x + 1",
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
        "while True:\n    return aux(x)\nreturn x + 1",
        "raise ValueError\nreturn x + 1",
        "assert x > 0\nreturn aux(x)",
        "try:\n    return aux(x)\nfinally:\n    pass\nreturn x + 1",
        "with open(1):\n    return aux(x)\nreturn x + 1",
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
    assert given_of(prompt, "f") == "import math\ndef given(x):\n    return x"
    assert given_of("import math\ndef f(x):\n    'text'", "f") == ""
    assert given_of("def stub(x):\n    'text'\ndef f(x):\n    'text'", "f") == ""
    assert preamble_of("def f(x:", "f") == ""
    broken = "import math\n  import os\nfrom re import sub\ndef f(x: sub\n    import the rest\n"
    assert preamble_of(broken, "f") == "import math\nfrom re import sub"


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
        "Sure:" + BLOCK + "\nThat is it.",
        "```python\n" + F + "```",
        BLOCK + ".",
        BLOCK + " It uses `return`.",
        BLOCK + " It returns 1.\nThat is it.",
        BLOCK + ".\nFor instance:\n```python\nprint(f())\n```",
        "Ex:\n```python\nprint(f())\n``` and the code:\n" + BLOCK,
        "1. Code:\n   ```python\n   def f():\n       return 1\n   ``` It returns 1.",
        "~~~python\n" + F + "\n~~~.",
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
    for line in ("    ```python", "    ```f()``` is 1", "```f()``` is 1"):
        documented = f'def f():\n    """\n{line}\n    """\n    return 1'
        assert code_of(f"```python\n{documented}\n```") == documented


def test_the_block_that_defines_what_is_wanted_is_the_first_choice():
    answer = "First aux:\n```python\ndef aux(): pass\n```\nNow f:\n" + BLOCK
    assert code_of(answer, "f") == F
    assert code_of(answer, "aux") == code_of(answer, "g") == code_of(answer) == "def aux(): pass"


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
        ("def g():\n    global aux\n    aux = 1", False),
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
    assert not adds_work(wrapper, "f")
    assert adds_work(wrapper.replace("aux(x)", "aux(x) + x"), "f")
    assert adds_work(wrapper.replace("return g(x)", "return list(map(g, x))"), "f")
