"""Programs taken out of answers, put together and taken apart, and what they define.

Pure functions of source text, which raise for none: whatever does not parse defines nothing.
"""

import ast
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping

from teamtune.envs.coop_code.flow import SCOPES, bound, reachable, read
from teamtune.sandbox.syntax_tree import parse_tree

HELPER = "aux"
"""The helper's name, which both agents are told."""
_FENCE = re.compile(
    r"(?:^|(?<![`~]))(```+|~~~+)[ \t]*([^\n`]*)\n(.*?)"
    r"(?:^[ \t]*\1[ \t]*$|^ {0,3}\1(?![^\n]*\1)[^\n]*$|\Z)",
    re.M | re.S,
)
"""Text may stand behind a closing fence, but for one further in: that is a docstring's."""
_LAST_FENCE = re.compile(r"(```+|~~~+)\s*\Z")
"""One that ends a line of the program instead of a line of its own."""
_DEFINING = (*SCOPES, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)


def code_of(answer: str, name: str = "") -> str:
    """The program in an answer: the first fenced block that defines `name` at its top level.

    Where none does it is the first that defines a function, or that parses, and else the first.
    Blocks in another language count only where there are no others. An answer that is a program
    as it stands needs no fence, if it gives a name a meaning: a word of prose parses as well.
    """
    blocks = _blocks(answer)
    trees = [parse(block) for block in blocks]
    wanted = [tree is not None and _defined(meanings(tree), name) is not None for tree in trees]
    defines = [_holds(tree, (ast.FunctionDef,)) for tree in trees]
    tries = [re.search(r"^(async )?def ", block, re.M) is not None for block in blocks]
    for good in (wanted, defines, tries, [tree is not None for tree in trees]):
        if True in good:
            return blocks[good.index(True)]
    return blocks[0] if blocks else ""


def _blocks(answer: str) -> list[str]:
    """The programs in an answer that may be Python, without the indentation of the fence."""
    answer = answer.replace("\r\n", "\n").replace("\r", "\n")
    tree = parse(answer.strip())
    if tree is not None and any(map(_gives_meaning, ast.walk(tree))):
        return [answer.strip()]
    fenced = [(label.strip().lower(), body) for _, label, body in _FENCE.findall(answer)]
    fenced = [(label, _LAST_FENCE.sub("", body)) for label, body in fenced]
    found = [(label, textwrap.dedent(body).strip("\n")) for label, body in fenced]
    python = [body for label, body in found if not label or "py" in label]
    return python or [body for _, body in found]


def parse(source: str) -> ast.Module | None:
    """The tree of `source`, None where it is no program."""
    try:
        tree: ast.Module = parse_tree(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree


def returns_value(source: str, name: str) -> bool:
    """Whether `source` defines a function `name`, which returns something but None somewhere.

    The definition must be the last meaning that the top level gives to the name.
    """
    tree = parse(source)
    function = _defined(meanings(tree), name) if tree else None
    if function is None:
        return False
    try:
        results = [v for flow in reachable(function) if flow.targets is None for v in flow.values]
    except RecursionError:  # too deep to tell what can be reached
        return True
    return any(not _is_none(value) for value in results)


def split_program(answer: str) -> tuple[str, str]:
    """The helper's part and the rest of what one agent wrote for both; together they are all of it.

    The helper's part goes to the end of `aux`, for it may need what stands before. Functions up
    there that nobody else in it mentions, such as the entry point, belong to the rest. Of several
    blocks those that define something are joined.
    """
    blocks = [block for block in _blocks(answer) if _holds(parse(block), _DEFINING)]
    source = "\n\n".join(blocks) if blocks else code_of(answer)
    tree = parse(source)
    helper = _defined(meanings(tree), HELPER) if tree else None
    if tree is None or helper is None:
        return "", source
    kept = tree.body[: tree.body.index(helper) + 1]
    reads = [set(read([step])) for step in kept]
    readers = Counter(name for names in reads for name in names)
    gone: set[int] = set()
    for step, names in list(zip(kept, reads))[-2::-1]:
        if not isinstance(step, ast.FunctionDef) or step.name == HELPER:
            continue
        if readers[step.name] == (step.name in names):  # nobody but itself
            readers.subtract(names)
            gone.update(_lines(step))
    upper = set(range(1, _lines(helper).stop)) - gone
    lower = set(range(_lines(helper).stop, source.count("\n") + 2))
    rest = [_cut(source, gone), _cut(source, lower)]
    return _cut(source, upper), "\n\n".join(part for part in rest if part)


def join(parts: Iterable[str]) -> str:
    """One program of several; imports from `__future__` go first, as they must."""
    futures, rest = [], []
    for part in parts:
        lines = part.split("\n")
        tree = parse(part) if "__future__" in part else None
        for step in tree.body if tree else []:
            if isinstance(step, ast.ImportFrom) and step.module == "__future__":
                futures.append(ast.unparse(step))
                head = lines[step.lineno - 1][: step.col_offset]
                tail = lines[_lines(step).stop - 2][step.end_col_offset :]
                for number in _lines(step):
                    lines[number - 1] = ""
                lines[step.lineno - 1] = f"{head}pass{tail}"
        rest.append("\n".join(lines).strip("\n"))
    return "\n\n".join(part for part in (*dict.fromkeys(futures), *rest) if part) + "\n"


def preamble_of(prompt: str, entry_point: str) -> str:
    """What a problem's prompt defines beside the entry point: imports and given functions.

    Of a prompt that does not parse, the lines at its top level that import something.
    """
    prompt, tree = _completed(prompt)
    if tree is None:
        kinds = (ast.Import, ast.ImportFrom)
        return "\n".join(line for line in prompt.split("\n") if _holds(parse(line), kinds))
    lines = set(range(1, prompt.count("\n") + 2))
    for step in tree.body:
        if isinstance(step, ast.FunctionDef) and step.name == entry_point:
            lines -= set(_lines(step))
    return _cut(prompt, lines)


def given_of(prompt: str, entry_point: str) -> str:
    """The functions that a prompt gives complete, with its imports; empty where it gives none.

    A function without more than a docstring is for the agents to write.
    """
    prompt, tree = _completed(prompt)
    body = tree.body if tree else []
    given = [
        step
        for step in body
        if isinstance(step, ast.FunctionDef)
        and step.name not in (entry_point, HELPER)
        and not all(isinstance(inner, ast.Expr | ast.Pass) for inner in step.body)
    ]
    imports = [step for step in body if given and isinstance(step, ast.Import | ast.ImportFrom)]
    return _cut(prompt, {line for step in (*imports, *given) for line in _lines(step)})


def _completed(prompt: str) -> tuple[str, ast.Module | None]:
    """A prompt and its tree; one that ends in a bare signature gets a body."""
    for source in (prompt, f"{prompt.rstrip()}\n    pass\n"):
        if tree := parse(source):
            return source, tree
    return prompt, None


def names_bound(source: str) -> set[str]:
    """All names to which `source` gives a meaning somewhere."""
    tree = parse(source)
    return _bound(tree) if tree else set()


def names_read(source: str) -> set[str]:
    """All names that `source` reads somewhere."""
    tree = parse(source)
    return set(read([tree])) if tree else set()


def _lines(step: ast.stmt) -> range:
    """The numbers of a statement's lines, those of its decorators among them."""
    first = min(n.lineno for n in (step, *getattr(step, "decorator_list", [])))
    return range(first, (step.end_lineno or step.lineno) + 1)


def _cut(source: str, numbers: set[int]) -> str:
    lines = enumerate(source.split("\n"), start=1)
    return "\n".join(line for number, line in lines if number in numbers).strip("\n")


def _holds(tree: ast.Module | None, kinds: tuple[type, ...]) -> bool:
    return tree is not None and any(isinstance(step, kinds) for step in tree.body)


def _gives_meaning(node: ast.AST) -> bool:
    """Whether it defines, imports or assigns; `Answer: none` only annotates."""
    return isinstance(node, _DEFINING) and getattr(node, "value", node) is not None


def _bound(tree: ast.AST) -> set[str]:
    return {name for node in ast.walk(tree) for name in bound(node)}


def meanings(tree: ast.Module) -> dict[str, ast.stmt]:
    """The last statement at the top level that gives a name its meaning, for that one holds."""
    last: dict[str, ast.stmt] = {}
    for step in tree.body:
        if isinstance(step, ast.If) and "__name__" in read([step.test]):
            continue  # runs where the program is the main one, which it is not here
        found = _bound(step) - _wrapped(step)
        if isinstance(step, SCOPES):  # what is inside is of its own, but for what it calls global
            shared = (n.names for n in ast.walk(step) if isinstance(n, ast.Global))
            found = {step.name}.union(*shared)
        last |= dict.fromkeys(last if "*" in found else found, step)
    return last


def _wrapped(step: ast.stmt) -> set[str]:
    """The name that stays a function where it is given back wrapped: `f = cache(f)`."""
    match step:
        case ast.Assign([ast.Name(name)], ast.Call(args=given)):
            return {name} if any(isinstance(g, ast.Name) and g.id == name for g in given) else set()
    return set()


def _defined(last: Mapping[str, ast.stmt], name: str) -> ast.FunctionDef | None:
    """The function that `name` means at the end of a program, None where it is none."""
    step = last.get(name)
    return step if isinstance(step, ast.FunctionDef) and step.name == name else None


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
