"""What an agent answered: what follows its thought, and in that a program, moves, a box, a tag.

An answer is any text. Readers raise for none, and take time that grows with its length alone; what
is longer than MAX_LENGTH holds nothing.
"""

import ast
import re
import textwrap
from collections.abc import Iterator

from teamtune.sandbox.syntax_tree import parse_tree

MAX_LENGTH = 40_000
"""Characters of an answer without its thought; about ten thousand tokens."""
MOVES = {"UP": "U", "DOWN": "D", "LEFT": "L", "RIGHT": "R"}
"""The moves on a board, as words and as letters."""

_THOUGHT, _THOUGHT_ENDS = "<think>", "</think>"
_MOVES_FOLLOW = re.compile(r"moves?\s*:", re.IGNORECASE)
_BETWEEN_MOVES = str.maketrans(dict.fromkeys(",;[](){}'\"`.*", " "))
_BOX = re.compile(r"\\boxed\s*\{")
_DEFINES = re.compile(r"^(async )?def ", re.MULTILINE)
_MEANING = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Import,
    ast.ImportFrom,
    ast.Assign,
    ast.AnnAssign,
)


def answer_of(text: str) -> str | None:
    """What follows the thought, which ends with `</think>`: the whole of a text without one.

    None, malformed, where the thought does not end or what follows it is too long. Rewards, parsers
    and other agents read nothing else. The answer of an answer is itself.
    """
    _, ended, after = text.rpartition(_THOUGHT_ENDS)
    if _THOUGHT in after or len(after) > MAX_LENGTH:
        return None
    return after.strip() if ended else after


def moves_of(text: str, max_moves: int) -> str | None:
    """The moves of an answer as letters of U, D, L, R; None where it is malformed.

    An answer is a list of the letters (or of the words up, down, left, right), separated by
    anything of spaces, commas and brackets; what stands before the last `Moves:` is reasoning.
    Moves past `max_moves` are not played.
    """
    answer = answer_of(text)
    if answer is None:
        return None
    if ":" in answer:
        answer = _MOVES_FOLLOW.split(answer)[-1]
    words = answer.upper().translate(_BETWEEN_MOVES).split()
    moves = "".join([MOVES.get(word, word) for word in words])
    return None if moves.strip("UDLR") else moves[:max_moves] or None


def boxed_of(text: str) -> str | None:
    r"""What is in the last `\boxed{...}` of an answer, braces within included; None without one.

    A last box that is not closed is none: the answer was cut off in it.
    """
    answer = answer_of(text) or ""
    start = max((box.end() for box in _BOX.finditer(answer)), default=None)
    if start is None:
        return None
    depth, escaped = 1, False
    for index in range(start, len(answer)):
        mark = answer[index]
        if not escaped:
            depth += (mark == "{") - (mark == "}")
        if not depth:
            return answer[start:index].strip()
        escaped = mark == "\\" and not escaped
    return None


def tagged_of(text: str, tag: str) -> str | None:
    """What is in the last `<tag>...</tag>` of an answer; None without one, or if it is cut off."""
    _, opened, after = (answer_of(text) or "").rpartition(f"<{tag}>")
    inside, closed, _ = after.partition(f"</{tag}>")
    return inside.strip() if opened and closed else None


def code_of(text: str, name: str = "") -> str:
    """The program in an answer: the first block of `blocks_of` that defines a function `name`.

    Where none does it is the first that defines a function, or that parses, and else the first.
    Empty where an answer has no program.
    """
    blocks = blocks_of(text)
    functions = [_functions(block) for block in blocks]
    for good in (
        [name in (found or ()) for found in functions],
        [bool(found) for found in functions],
        [_DEFINES.search(block) is not None for block in blocks],
        [found is not None for found in functions],
    ):
        if True in good:
            return blocks[good.index(True)]
    return blocks[0] if blocks else ""


def blocks_of(text: str) -> list[str]:
    """The programs in an answer that may be Python, in order, without the fence's indentation.

    An answer that is a program as it stands needs no fence, if it gives a name a meaning: a word of
    prose parses as well. Blocks in another language count only where there are no others.
    """
    answer = answer_of(text.replace("\r\n", "\n").replace("\r", "\n")) or ""
    if _is_program(answer):
        return [answer.strip()]
    found = [(label, textwrap.dedent(body).strip("\n")) for label, body in _fenced(answer)]
    python = [body for label, body in found if not label or "py" in label]
    return python or [body for _, body in found]


def labelled_blocks(text: str) -> dict[str, str]:
    """The fenced blocks of an answer by label, in lower case; of equal labels the last one's."""
    answer = answer_of(text.replace("\r\n", "\n").replace("\r", "\n")) or ""
    return dict(_fenced(answer))


def parse(source: str) -> ast.Module | None:
    """The tree of `source`, None where it is no program."""
    try:
        tree: ast.Module = parse_tree(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree


def _functions(source: str) -> list[str] | None:
    """The functions that a program defines at its top level, None where it is no program."""
    tree = parse(source)
    return None if tree is None else [s.name for s in tree.body if isinstance(s, ast.FunctionDef)]


def _is_program(text: str) -> bool:
    """Whether it is a program that gives a name a meaning; `Answer: none` only annotates."""
    tree = parse(text.strip())
    return tree is not None and any(
        isinstance(node, _MEANING) and getattr(node, "value", node) is not None
        for node in ast.walk(tree)
    )


def _fenced(answer: str) -> Iterator[tuple[str, str]]:
    """The fenced blocks, each its label in lower case and its body; the last need not be closed.

    A first fence that stands behind a program closes it, unless it is labelled Python: its opening
    was lost.
    """
    fence, label, body, first = "", "", list[str](), True
    for line in answer.split("\n"):
        if fence and _closes(line, fence):
            yield label, "\n".join(body)
            fence, body = "", []
        elif fence or not (opening := _opening(line)):
            body.append(line)
        else:
            before, fence, label = opening
            above = "\n".join([*body, before])
            if first and "py" not in label and _is_program(above):
                yield "", above
                fence = ""
            first, body = False, []
    if fence:
        last = "\n".join(body).rstrip()
        yield label, last.rstrip(fence[0]) if last.endswith(fence) else last


def _opening(line: str) -> tuple[str, str, str] | None:
    """What stands before a fence that begins in `line`, the fence, and its label; None without."""
    for mark in "`~":
        before, found, label = line.rpartition(mark * 3)
        before = before.rstrip(mark)
        if found and not set(label) & {"`", mark} and not before.endswith(("`", "~")):
            fence = line[len(before) : len(line) - len(label)]
            return before, fence, label.strip().lower()
    return None


def _closes(line: str, fence: str) -> bool:
    """Whether a line ends the block: text may stand behind a fence that is not far in.

    One further in, or with another fence behind it, is a docstring's.
    """
    rest = line.strip(" \t")
    if not rest.startswith(fence):
        return False
    near = line[:4].lstrip(" ").startswith(fence[0])
    return rest == fence or (near and fence not in rest[len(fence) :])
