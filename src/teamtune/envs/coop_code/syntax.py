"""What a pair of programs shows on its syntax tree: who defines what, and who really uses whom.

Pure functions of source text; whatever does not parse defines nothing.
"""

import ast
import re
from collections.abc import Iterator

HELPER = "aux"
"""The helper's name, which both agents are told."""
_FENCE = re.compile(
    r"```[ \t]*(?:python|py|python3)?[ \t]*\r?\n(.*?)(?:```|\Z)", re.DOTALL | re.IGNORECASE
)
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef
_WORK = (
    ast.BinOp | ast.BoolOp | ast.UnaryOp | ast.Compare | ast.Subscript | ast.JoinedStr
    | ast.For | ast.While | ast.AugAssign | ast.ListComp | ast.SetComp | ast.DictComp
    | ast.GeneratorExp | ast.Match
)  # fmt: skip


def code_of(answer: str) -> str:
    """The program in an answer: the first fenced block that defines a function, else the first.

    An answer without a block is a program where it parses as one, and else holds none.
    """
    blocks = [block.strip("\r\n") for block in _FENCE.findall(answer)]
    if blocks:
        return next((block for block in blocks if re.search(r"^\s*def ", block, re.M)), blocks[0])
    return answer.strip() if parse(answer.strip()) is not None else ""


def parse(source: str) -> ast.Module | None:
    """The tree of `source`, None where it is no program."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def returns_value(source: str, name: str) -> bool:
    """Whether `source` defines a function `name`, which returns something but None somewhere."""
    function = _defined(parse(source), name)
    if function is None:
        return False
    values = (step.value for step in _own(function, False) if isinstance(step, ast.Return))
    return any(value is not None and not _is_none(value) for value in values)


def uses_helper(main: str, entry_point: str) -> bool:
    """Whether the entry point calls the helper of the other agent and uses what it returns.

    The call may be in a function that the entry point calls. It counts neither where it cannot be
    reached, nor where its value is dropped, nor where `main` gives the helper's name to something
    of its own.
    """
    tree = parse(main)
    if tree is None or _binds(tree, HELPER):
        return False
    return any(_uses(function) for function in _reached(tree, entry_point))


def adds_work(main: str, entry_point: str) -> bool:
    """Whether the entry point does more than to hand its arguments to the helper and back.

    Work is an operation, a comparison, an item, a loop, or a call of anything but the helper; a
    condition that is a constant is none.
    """
    tree = parse(main)
    if tree is None:
        return False
    for function in _reached(tree, entry_point):
        for node in _own(function):
            if isinstance(node, _WORK) and not _is_constant(node):
                return True
            if isinstance(node, ast.If | ast.IfExp) and not _is_constant(node.test):
                return True
            if isinstance(node, ast.Call) and not _calls(node, HELPER):
                return True
    return False


def split_program(answer: str) -> tuple[str, str]:
    """The helper and the rest of a program that one agent wrote for both."""
    source = code_of(answer)
    tree = parse(source)
    if tree is None:
        return "", source
    shared = [s for s in tree.body if isinstance(s, ast.Import | ast.ImportFrom)]
    helper = [s for s in tree.body if isinstance(s, ast.FunctionDef) and s.name == HELPER]
    main = [s for s in tree.body if s not in helper]
    if not helper:
        return "", source
    return _source([*shared, *helper]), _source(main)


def preamble_of(prompt: str, entry_point: str) -> str:
    """What a problem's prompt defines beside the entry point: imports and given functions."""
    tree = parse(prompt)
    if tree is None:
        return ""
    kept = [s for s in tree.body if not (isinstance(s, ast.FunctionDef) and s.name == entry_point)]
    return _source(kept)


def _source(steps: list[ast.stmt]) -> str:
    return ast.unparse(ast.Module(steps, []))


def _defined(tree: ast.Module | None, name: str) -> ast.FunctionDef | None:
    """The last definition of a function at the top level, for that one holds."""
    found = [s for s in (tree.body if tree else []) if isinstance(s, ast.FunctionDef)]
    return next((s for s in reversed(found) if s.name == name), None)


def _reached(tree: ast.Module, entry_point: str) -> list[ast.FunctionDef]:
    """The entry point and the functions of `tree` that it calls, directly or through others."""
    reached: dict[str, ast.FunctionDef] = {}
    pending = [entry_point]
    while pending:
        name = pending.pop()
        function = _defined(tree, name)
        if function is not None and name not in reached:
            reached[name] = function
            calls = (node.func for node in _own(function) if isinstance(node, ast.Call))
            pending += [called.id for called in calls if isinstance(called, ast.Name)]
    return list(reached.values())


def _own(function: ast.FunctionDef, inner: bool = True) -> Iterator[ast.AST]:
    """The nodes that can run when `function` runs: none behind the end of a block.

    With `inner` those of inner functions that are mentioned too, for somebody may call them.
    """
    mentioned = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)}
    pending: list[ast.AST] = [*_live(function.body)]
    while pending:
        node = pending.pop()
        yield node
        named = getattr(node, "name", None) in mentioned or isinstance(node, ast.Lambda)
        if isinstance(node, _FUNCTIONS) and not (inner and named):
            continue
        taken = _branch(node)
        if taken is not None:
            pending += _live(taken)
            continue
        for _, value in ast.iter_fields(node):
            if isinstance(value, ast.AST):
                pending.append(value)
            elif isinstance(value, list):
                parts = [part for part in value if isinstance(part, ast.AST)]
                pending += _live(parts) if parts and isinstance(parts[0], ast.stmt) else parts


def _branch(node: ast.AST) -> list[ast.stmt] | None:
    """The block that runs where a condition is a literal; None where both may."""
    if isinstance(node, ast.If | ast.While) and isinstance(node.test, ast.Constant):
        return node.body if node.test.value else node.orelse
    return None


def _live(steps: list) -> list:
    """The statements up to the one that leaves the block."""
    for i, step in enumerate(steps):
        if _leaves(step):
            return steps[: i + 1]
    return steps


def _leaves(step: ast.AST) -> bool:
    """Whether nothing runs behind this statement of a block."""
    if not isinstance(step, ast.If):
        return isinstance(step, ast.Return | ast.Raise | ast.Break | ast.Continue)
    blocks = [_branch(step)] if _branch(step) is not None else [step.body, step.orelse]
    return all(any(_leaves(inner) for inner in block or []) for block in blocks)


def _uses(function: ast.FunctionDef) -> bool:
    """Whether the value of a call of the helper goes anywhere but into a name nobody reads.

    The helper handed to another function, `map(aux, items)` for instance, is a call as well.
    """
    nodes = list(_own(function))
    read = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    dropped = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Assign):
            plain = all(isinstance(t, ast.Name | ast.Tuple | ast.List) for t in node.targets)
            if plain and not read & {name.id for t in node.targets for name in _names(t)}:
                dropped.add(id(node.value))
    calls = [n for n in nodes if isinstance(n, ast.Call) and id(n) not in dropped]
    return any(_calls(call, HELPER) or _hands_on(call, HELPER) for call in calls)


def _hands_on(call: ast.Call, name: str) -> bool:
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    return any(isinstance(value, ast.Name) and value.id == name for value in given)


def _names(target: ast.AST) -> Iterator[ast.Name]:
    return (node for node in ast.walk(target) if isinstance(node, ast.Name))


def _calls(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _binds(tree: ast.AST, name: str) -> bool:
    """Whether anything in `tree` gives `name` another meaning."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound = node.name == name
        elif isinstance(node, ast.Name):
            bound = node.id == name and isinstance(node.ctx, ast.Store | ast.Del)
        elif isinstance(node, ast.arg):
            bound = node.arg == name
        elif isinstance(node, ast.alias):
            bound = (node.asname or node.name).partition(".")[0] in (name, "*")
        else:
            bound = False
        if bound:
            return True
    return False


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_constant(node: ast.AST) -> bool:
    """Whether an expression depends on nothing."""
    return not any(isinstance(n, ast.Name | ast.Call | ast.Attribute) for n in ast.walk(node))
