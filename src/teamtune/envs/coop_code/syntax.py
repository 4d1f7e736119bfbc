"""What a pair of programs shows on its syntax tree: who defines what, and who really uses whom.

Pure functions of source text, which raise for none: whatever does not parse defines nothing.
"""

import ast
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from teamtune.envs.coop_code.live import SCOPES, UNTELLABLE, bound, live, read
from teamtune.envs.sandbox.syntax_tree import parse_tree

HELPER = "aux"
"""The helper's name, which both agents are told."""
_FENCE = re.compile(
    r"(?:^|(?<=\s))(```+|~~~+)[ \t]*([^\n`]*)\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.M | re.S
)
_WORK = (
    ast.BinOp | ast.BoolOp | ast.UnaryOp | ast.Compare | ast.Subscript | ast.JoinedStr
    | ast.For | ast.While | ast.AugAssign | ast.ListComp | ast.SetComp | ast.DictComp
    | ast.GeneratorExp | ast.Match
)  # fmt: skip
_DEFINING = (*SCOPES, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)


def code_of(answer: str) -> str:
    """The program in an answer: the first fenced block that defines a function at its top level.

    Where none does it is the first that parses, and else the first. Blocks in another language
    count only where there are no others. An answer that is a program as it stands needs no fence.
    """
    blocks = _blocks(answer)
    trees = [parse(block) for block in blocks]
    defines = [_holds(tree, (ast.FunctionDef,)) for tree in trees]
    tries = [re.search(r"^(async )?def ", block, re.M) is not None for block in blocks]
    for good in (defines, tries, [tree is not None for tree in trees]):
        if True in good:
            return blocks[good.index(True)]
    return blocks[0] if blocks else ""


def _blocks(answer: str) -> list[str]:
    """The programs in an answer that may be Python, without the indentation of the fence."""
    answer = answer.replace("\r\n", "\n").replace("\r", "\n")
    if parse(answer.strip()) is not None:
        return [answer.strip()]
    fenced = [(label.strip().lower(), body) for _, label, body in _FENCE.findall(answer)]
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


def is_program(source: str) -> bool:
    """Whether `source` parses and holds at least one statement."""
    tree = parse(source)
    return tree is not None and bool(tree.body)


def returns_value(source: str, name: str) -> bool:
    """Whether `source` defines a function `name`, which returns something but None somewhere.

    The definition must be the last meaning that the top level gives to the name.
    """
    tree = parse(source)
    function = _defined(_meanings(tree), name) if tree else None
    if function is None:
        return False
    with suppress(*UNTELLABLE):  # then nothing counts as dead
        function = live(function)
    pending: list[ast.AST] = [*function.body]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Return) and node.value and not _is_none(node.value):
            return True
        if not isinstance(node, (*SCOPES, ast.Lambda)):
            pending += ast.iter_child_nodes(node)
    return False


def uses_helper(main: str, entry_point: str) -> bool:
    """Whether the entry point calls the helper of the other agent and uses what it returns.

    The call may be in a function that the entry point mentions. It counts neither where it cannot
    be reached, nor where its value is dropped, nor where `main` gives the helper's name to
    something of its own. What only values can tell, a tree cannot: `n * 2 + 0 * aux(n)`, a
    condition that never holds, `globals()["aux"] = ...` and `exec` all pass.
    """
    tree = parse(main)
    try:
        if tree is None or {HELPER, "*"} & _bound(tree):
            return False
        return any(map(_uses, _reached(tree, entry_point)))
    except UNTELLABLE:
        return False


def adds_work(main: str, entry_point: str) -> bool:
    """Whether the entry point does more than to hand its arguments to the helper and back.

    Work is an operation, a comparison, an item, a loop, a condition, or a call of anything but the
    helper and functions of `main`, whose own work counts. Dead code is none, nor is a condition
    that is a constant or does not matter. Work that changes nothing, as in `aux(n) + 0`, still is.
    """
    tree = parse(main)
    try:
        functions = _reached(tree, entry_point) if tree else []
        nodes = [node for function in functions for node in _nodes(function)]
        own = {HELPER, *(function.name for function in functions)}
        for node in nodes:
            if isinstance(node, ast.FunctionDef):
                own.add(node.name)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
                own |= _bound(node)
        return any(_is_work(node, own) for node in nodes)
    except UNTELLABLE:
        return False


def split_program(answer: str) -> tuple[str, str]:
    """The helper's part and the rest of what one agent wrote for both; together they are all of it.

    The helper's part goes to the end of `aux`, for it may need what stands before. Functions up
    there that nobody else in it mentions, such as the entry point, belong to the rest. Of several
    blocks those that define something are joined.
    """
    blocks = [block for block in _blocks(answer) if _holds(parse(block), _DEFINING)]
    source = "\n\n".join(blocks) if blocks else code_of(answer)
    tree = parse(source)
    helper = _defined(_meanings(tree), HELPER) if tree else None
    if tree is None or helper is None:
        return "", source
    kept = tree.body[: tree.body.index(helper) + 1]
    reads = [{name.id for name in read([step])} for step in kept]
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
    """What a problem's prompt defines beside the entry point: imports and given functions."""
    tree = parse(prompt)
    if tree is None:
        return ""
    lines = set(range(1, prompt.count("\n") + 2))
    for step in tree.body:
        if isinstance(step, ast.FunctionDef) and step.name == entry_point:
            lines -= set(_lines(step))
    return _cut(prompt, lines)


def given_of(prompt: str, entry_point: str) -> str:
    """The functions that a prompt gives complete, with its imports; empty where it gives none.

    A function without more than a docstring is for the agents to write.
    """
    tree = parse(prompt)
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


def names_bound(source: str) -> set[str]:
    """All names to which `source` gives a meaning somewhere."""
    tree = parse(source)
    return _bound(tree) if tree else set()


def names_read(source: str) -> set[str]:
    """All names that `source` reads somewhere."""
    tree = parse(source)
    return {name.id for name in read([tree])} if tree else set()


def _lines(step: ast.stmt) -> range:
    """The numbers of a statement's lines, those of its decorators among them."""
    first = min(n.lineno for n in (step, *getattr(step, "decorator_list", [])))
    return range(first, (step.end_lineno or step.lineno) + 1)


def _cut(source: str, numbers: set[int]) -> str:
    lines = enumerate(source.split("\n"), start=1)
    return "\n".join(line for number, line in lines if number in numbers).strip("\n")


def _holds(tree: ast.Module | None, kinds: tuple[type, ...]) -> bool:
    return tree is not None and any(isinstance(step, kinds) for step in tree.body)


def _bound(tree: ast.AST) -> set[str]:
    return {name for node in ast.walk(tree) for name in bound(node)}


def _meanings(tree: ast.Module) -> dict[str, ast.stmt]:
    """The last statement at the top level that gives a name its meaning, for that one holds."""
    last: dict[str, ast.stmt] = {}
    for step in tree.body:
        found = _bound(step)
        if isinstance(step, SCOPES):  # what is inside is of its own, but for what it calls global
            shared = (n.names for n in ast.walk(step) if isinstance(n, ast.Global))
            found = {step.name}.union(*shared)
        last |= dict.fromkeys(last if "*" in found else found, step)
    return last


def _defined(last: Mapping[str, ast.stmt], name: str) -> ast.FunctionDef | None:
    """The function that `name` means at the end of a program, None where it is none."""
    step = last.get(name)
    return step if isinstance(step, ast.FunctionDef) and step.name == name else None


def _reached(tree: ast.Module, entry_point: str) -> list[ast.FunctionDef]:
    """The live part of the entry point and of the functions it mentions, directly or not."""
    last = _meanings(tree)
    reached: dict[str, ast.FunctionDef] = {}
    pending = [entry_point]
    while pending:
        name = pending.pop()
        function = _defined(last, name)
        if function is None or name in reached or not _is_itself(last, function):
            continue
        reached[name] = live(function)
        pending += [mentioned.id for mentioned in read(reached[name].body)]
    return list(reached.values())


def _is_itself(last: Mapping[str, ast.stmt], function: ast.FunctionDef) -> bool:
    """Whether no decorator may have put another function in its place."""
    for decorator in function.decorator_list:
        named = decorator.func if isinstance(decorator, ast.Call) else decorator
        path = ast.unparse(named).split(".")
        known = path[-1] in ("cache", "lru_cache") and path[:-1] in ([], ["functools"])
        if not known or not isinstance(last.get(path[0]), ast.Import | ast.ImportFrom | None):
            return False
    return True


def _nodes(function: ast.FunctionDef) -> Iterator[ast.AST]:
    return (node for step in function.body for node in ast.walk(step))


def _uses(function: ast.FunctionDef) -> bool:
    """Whether a live function calls the helper other than for nothing.

    The helper handed to another function, `map(aux, items)` for instance, is a call as well.
    """
    nodes = list(_nodes(function))
    dropped = {node.value for node in nodes if isinstance(node, ast.Expr)}
    for call in (node for node in nodes if isinstance(node, ast.Call)):
        given = [*call.args, *(word.value for word in call.keywords)]
        if any(_is_helper(value) for value in given):
            return True
        if _is_helper(call.func) and call not in dropped:
            return True
    return False


def _is_helper(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == HELPER


def _is_work(node: ast.AST, own: set[str]) -> bool:
    """Whether a live node does something; `own` are the functions whose calls alone do not."""
    if isinstance(node, _WORK):
        return not _is_constant(node)
    if isinstance(node, ast.If | ast.IfExp):
        return not _is_constant(node.test)
    if isinstance(node, ast.Call):
        return not (isinstance(node.func, ast.Name) and node.func.id in own)
    return False


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_constant(node: ast.AST) -> bool:
    """Whether an expression depends on nothing."""
    return not any(isinstance(n, ast.Name | ast.Call | ast.Attribute) for n in ast.walk(node))
