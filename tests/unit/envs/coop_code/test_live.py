"""What is dead in a function counts for nothing; what only may be dead counts."""

import pytest

from teamtune.envs.coop_code.syntax import adds_work, uses_helper


def main(body: str) -> str:
    return "def f(x):\n" + "\n".join("    " + line for line in body.split("\n"))


@pytest.mark.parametrize(
    "body",
    [
        "x.sort(key=aux)\nreturn x",
        "out = []\nfor i in x:\n    if aux(i):\n        out.append(i)\nreturn out",
        "n = 0\nfor i in x:\n    n += aux(i)\nreturn n",
        "n: int = aux(x)\nreturn n",
        "if (n := aux(x)) > 1:\n    return n\nreturn 2",
        "try:\n    return int(x)\nexcept ValueError:\n    return aux(x)",
        "try:\n    return int(x)\nexcept ValueError:\n    pass\nreturn aux(x)",
        "while True:\n    if x:\n        break\n    x += 1\nreturn aux(x)",
        "a, b = 0, 1\nfor _ in range(x):\n    a, b = b, aux(a) + b\nreturn a",
        "last = None\nfor i in x:\n    last, now = aux(i), last\nreturn last, now",
        "[x.append(aux(i)) for i in x]\nreturn x",
        "with suppress(ValueError):\n    return int(x)\nreturn aux(x)",
        "n = 1\ndef set_it():\n    nonlocal n\n    n = aux(x)\nset_it()\nreturn n",
        "match x:\n    case 1:\n        return 2\nreturn aux(x)",
        "for i in x:\n    yield aux(i)",
        "if x == 0:\n    return 0\nelif x == 1:\n    return aux(x)",
        "y = aux(x)\ny = y + 1\nreturn y",
        "y = 1\ny += aux(x)\nreturn y",
        "return x and aux(x)",
    ],
)
def test_calls_that_matter(body):
    assert uses_helper(main(body), "f")


@pytest.mark.parametrize(
    "body",
    [
        "y: int = aux(x)\nreturn x * 2",
        "(y := aux(x))\nreturn x * 2",
        "(aux(x),)\nreturn x * 2",
        "{1: aux(x)}\nreturn x * 2",
        "[aux(i) for i in x]\nreturn x * 2",
        "print(aux(x))\nreturn x * 2",
        "map(aux, [x])\nreturn x * 2",
        "y = aux(x)\ny\nreturn x * 2",
        "y = aux(x)\nz = y\nreturn x * 2",
        "y = 0\ny = y + aux(x)\nreturn x * 2",
        "y = aux(x)\ny = x * 2\nreturn y",
        "y = aux(x)\ndel y\nreturn x * 2",
        "if aux(x):\n    pass\nreturn x * 2",
        "if aux(x):\n    return x * 2\nreturn x * 2",
        "assert aux(x)\nreturn x * 2",
        "for i in []:\n    return aux(x)\nreturn x * 2",
        "while True:\n    return x * 2\nreturn aux(x)",
        "try:\n    return x * 2\nfinally:\n    pass\nreturn aux(x)",
        "try:\n    return x * 2\nexcept ValueError:\n    raise\nreturn aux(x)",
        "with open(x):\n    return x * 2\nreturn aux(x)",
        "match x:\n    case _:\n        return x * 2\nreturn aux(x)",
        "if not False:\n    return x * 2\nreturn aux(x)",
        "if 1 < 2:\n    return x * 2\nreturn aux(x)",
        "return x * 2 if True else aux(x)",
        "return (True or aux(x)) and x * 2",
        "return x * 2 if 1 or x else aux(x)",
        "try:\n    g()\nexcept ValueError as aux:\n    return aux(x)",
        "match x:\n    case aux:\n        return aux(x)",
        "match x:\n    case [*aux]:\n        return aux(x)",
        "match x:\n    case {**aux}:\n        return aux(x)",
    ],
)
def test_calls_that_do_not(body):
    assert not uses_helper(main(body), "f")


@pytest.mark.parametrize(
    "body",
    [
        "_ = x + 0\nreturn aux(x)",
        "x == x\nreturn aux(x)",
        "print()\nreturn aux(x)",
        "if x is None:\n    pass\nreturn aux(x)",
        "if x is None:\n    y = 1\nreturn aux(x)",
        "for i in x:\n    pass\nreturn aux(x)",
        "if x:\n    return aux(x)\nreturn aux(x)",
        "if x:\n    return aux(x)\nelse:\n    return aux(x)",
        "return aux(x) if x else aux(x)",
        "r: dict[str, int] = aux(x)\nreturn r",
        "def g(y: int | None) -> list[int]:\n    return aux(y)\nreturn g(x)",
        "g = lambda: aux(x)\nreturn g()",
        "while True:\n    return aux(x)",
        "y = x + 1\ny = aux(x)\nreturn y",
        "assert x > 0\nreturn aux(x)",
    ],
)
def test_work_that_changes_nothing(body):
    assert uses_helper(main(body), "f") and not adds_work(main(body), "f")
