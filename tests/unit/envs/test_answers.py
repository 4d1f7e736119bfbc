"""What is read from an answer, whatever stands around it, and in time linear in its length."""

import time

import pytest

from teamtune.envs.answers import (
    MAX_LENGTH,
    answer_of,
    boxed_of,
    code_of,
    labelled_blocks,
    moves_of,
)
from teamtune.envs.coop_code.cooperation import adds_work
from teamtune.envs.coop_code.syntax import returns_value, split_program


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("U R", "U R"),
        (" U R\n", " U R\n"),
        ("", ""),
        ("<think>L</think>\n\nU R\n", "U R"),
        ("the template opened it</think>U R", "U R"),
        ("<think>one</think>no<think>two</think>U R", "U R"),
        ("<think></think>", ""),
        ("<think>U R", None),
        ("<think>one</think>U R<think>two", None),
        ("A" * MAX_LENGTH, "A" * MAX_LENGTH),
        ("A" * (MAX_LENGTH + 1), None),
        ("<think>" + "A" * MAX_LENGTH + "</think>U", "U"),
    ],
)
def test_the_answer_is_what_follows_the_thought(text, answer):
    assert answer_of(text) == answer
    assert answer is None or answer_of(answer) == answer


def test_readers_see_no_thought():
    assert (
        code_of("<think>```python\ndef f(): return 1\n```</think>```python\nx = 1\n```") == "x = 1"
    )
    assert moves_of("<think>Moves: L</think>U R", 4) == "UR"
    assert boxed_of(r"<think>\boxed{1}</think>It is \boxed{2}") == "2"
    assert code_of("<think>```python\nx = 1\n```") == ""
    assert moves_of("<think>U", 4) is boxed_of(r"<think>\boxed{1}") is None


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        (r"So \boxed{42}.", "42"),
        (r"\boxed{1} or \boxed{ 2 }", "2"),
        (r"\boxed{\frac{1}{\sqrt{2}}}", r"\frac{1}{\sqrt{2}}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\{}", r"\{"),
        (r"\boxed {3}", "3"),
        (r"\boxed{}", ""),
        (r"\boxed{1} then \boxed{2", None),
        ("boxed{1}", None),
        ("42", None),
    ],
)
def test_the_last_box_counts(text, inside):
    assert boxed_of(text) == inside


@pytest.mark.parametrize(
    ("text", "moves"),
    [
        ("U R R", "URR"),
        ("URR", "URR"),
        ("[U, R, 'R']", "URR"),
        ("up Right d", "URD"),
        ("First left, then I think.\nMoves: U R", "UR"),
        ("Moves: L\nno: Moves: **U R**", "UR"),
        ("U R D L U R", "URDL"),
        ("U?", None),
        ("run", None),
        ("", None),
        ("Moves: U R because", None),
    ],
)
def test_parsing(text, moves):
    assert moves_of(text, 4) == moves


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


@pytest.mark.parametrize("more", ["", "\n", " That is it.", "\nThat is it.\n```text\n1\n```"])
def test_a_closing_fence_without_an_opening_one_is_read(more):
    assert code_of(F + "\n```" + more) == F
    assert code_of("Some prose.\n```\n" + F + "\n```") == F


LONG = {
    "a sum": "def aux(x):\n    return " + "+".join(["x"] * 3000),
    "a longer sum": "def aux(x):\n    return " + "+".join(["x"] * 19_000),
    "an open fence": "```" + " " * MAX_LENGTH,
    "a labelled open fence": "```python" + " " * (MAX_LENGTH - 20) + "x",
    "fences": "```\n" * (MAX_LENGTH // 4),
    "marks": "`" * (MAX_LENGTH - 1) + "x",
    "marks in turn": "~`" * (MAX_LENGTH // 2),
    "assignments": "def aux(x):\n    y0 = x\n"
    + "".join(f"    y{i + 1} = y{i}\n" for i in range(1800))
    + "    return y1800",
    "comparisons": "def aux(x):\n    return " + "x<" * 3000 + "x",
    "branches": "def aux(x):\n    if x: pass\n" + "    elif x: y = 1\n" * 2000 + "    return y",
    "boxes": r"\boxed{" * (MAX_LENGTH // 7),
    "labels": "moves:" * (MAX_LENGTH // 6),
    "thoughts": "<think>" * 100_000,
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_nothing_takes_longer_than_its_length(text):
    started = time.process_time()
    code = code_of(text, "aux") or text
    moves_of(text, 8), boxed_of(text), split_program(text)
    returns_value(code, "aux"), adds_work(code, "aux")
    assert time.process_time() - started < 10  # a square of the length takes minutes


def test_blocks_are_found_by_their_label():
    text = "Mine:\n```Input\n1 2\n\n3\n```\nand\n```output\n6\n```\nor rather\n```output\n7"
    assert labelled_blocks(text) == {"input": "1 2\n\n3", "output": "7"}
    assert labelled_blocks(f"<think>{text}") == labelled_blocks("none") == {}
