"""Whether a team's entry point needs the helper, and whether it adds anything to it.

It needs the helper where its result depends on it as the tree shows, and as a trial does: the
program runs once more with a helper that returns something else, and a test stops passing.
"""

import ast
from collections.abc import Iterator

from teamtune.envs.coop_code.flow import SCOPES, Flow, bound, decisive, read
from teamtune.envs.coop_code.syntax import HELPER, meanings, parse

_ALTERED = """\
def __altered(helper):
    from functools import wraps
    def other(value):
        if isinstance(value, bool):
            return not value
        if isinstance(value, (int, float, complex)):
            return {number}
        if isinstance(value, str):
            return {text}
        if isinstance(value, (list, tuple)):
            return {sequence}
        if isinstance(value, (set, frozenset)):
            return {members}
        if isinstance(value, dict):
            return {mapping}
        if hasattr(value, "__next__"):
            return iter(())
        return 0 if value is None else None
    return wraps(helper)(lambda *given, **named: other(helper(*given, **named)))
{name} = __altered({name})"""

ALTERATIONS = (
    _ALTERED.format(
        name=HELPER,
        number="0 if value else 1",
        text='"" if value else "x"',
        sequence="value[:0] if value else type(value)([0])",
        members="value - value if value else value | {0}",
        mapping='{} if value else {"x": 0}',
    ),
    _ALTERED.format(
        name=HELPER,
        number="-value - 1000",
        text='"x" + value',
        sequence="value[::-1]",
        members="value ^ {0}",
        mapping="{k: None for k in value}",
    ),
    _ALTERED.format(
        name=HELPER,
        number="value + 1001",
        text='value + "x"',
        sequence="value + (value[-1:] or type(value)([0]))",
        members="value ^ {1}",
        mapping='{**value, "x": 0}',
    ),
)
"""Statements to put behind the helper, after which it returns other values of the same kind.

Empty or zero against something, then far on either side: a condition on the value has to turn.
"""

_WORK = (
    ast.BinOp | ast.BoolOp | ast.UnaryOp | ast.Compare | ast.Subscript | ast.JoinedStr
    | ast.IfExp | ast.AugAssign | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
)  # fmt: skip


def reads_helper(main: str, entry_point: str) -> bool:
    """Whether what the entry point returns depends on the helper, as far as the tree shows.

    True where the tree is too deep to tell.
    """
    try:
        return any(HELPER in read(_nodes(flows)) for _, flows in _involved(main, entry_point))
    except RecursionError:
        return True


def adds_work(main: str, entry_point: str) -> bool:
    """Whether the entry point does more than to hand its arguments to the helper and back.

    Work is an operation, a comparison, an item, a loop, a condition, a second call of the helper,
    or a call of anything but the helper and functions of `main`, whose own work counts, or what
    stands for one of them. It has to bear on the result: what cannot be reached or is not returned
    is none. Work that changes nothing, as in `aux(n) + 0`, still is.
    """
    try:
        own = _own_of(main)
        found = _involved(main, entry_point)
        return any(_works(flows, _own_in(step, own)) for step, flows in found)
    except RecursionError:  # too deep to walk
        return False


def _involved(main: str, entry_point: str) -> Iterator[tuple[ast.stmt, list[Flow]]]:
    """The entry point and what it reads of `main`'s top level, with the flows that decide on each.

    May raise RecursionError.
    """
    known = _top_level(main)
    pending, seen = [entry_point], set[str]()
    while pending:
        name = pending.pop()
        if name in seen or name not in known:
            continue
        seen.add(name)
        match known[name]:
            case ast.Assign(value=ast.expr() as value) | ast.AnnAssign(value=ast.expr() as value):
                flows = [Flow(None, (value,), ())]
                yield known[name], flows
                pending += read([value])
            case ast.FunctionDef() | ast.ClassDef() as scope:
                for function in scope.body if isinstance(scope, ast.ClassDef) else [scope]:
                    if isinstance(function, ast.FunctionDef):
                        flows = decisive(function)
                        yield function, flows
                        pending += set(read(_nodes(flows))) - _local(function)


def _top_level(main: str) -> dict[str, ast.stmt]:
    """The statement that gives each name of the top level its meaning."""
    tree = parse(main)
    return meanings(tree) if tree else {}


def _local(function: ast.FunctionDef) -> set[str]:
    """The names that mean something else inside a function than at the top level."""
    nodes = list(ast.walk(function))
    shared = {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
    return {name for node in nodes for name in bound(node)} - shared


def _nodes(flows: list[Flow]) -> list[ast.AST]:
    return [node for flow in flows for node in (*flow.values, *flow.conditions)]


def _works(flows: list[Flow], own: set[str]) -> bool:
    """Whether flows hold work; `own` are the functions whose calls alone are none."""
    nodes = [node for flow in flows for value in flow.values for node in ast.walk(value)]
    called = [node.func for node in nodes if isinstance(node, ast.Call)]
    return (
        sum(isinstance(func, ast.Name) and func.id == HELPER for func in called) > 1
        or any(not _is_constant(c) for flow in flows for c in flow.conditions)
        or any(_is_work(node, own) for node in nodes)
    )


def _own_of(main: str) -> set[str]:
    """The helper, the top level's functions and classes, and the names that stand for one."""
    own = {HELPER}
    for name, step in _top_level(main).items():
        if _is_own(step, own):
            own.add(name)
    return own


def _own_in(step: ast.stmt, own: set[str]) -> set[str]:
    """`own` and the inner functions of a statement, and the names that stand for one."""
    own = set(own)
    for node in ast.walk(step):
        if _is_own(node, own):
            own.update(n for part in (node, *ast.iter_child_nodes(node)) for n in bound(part))
    return own


def _is_own(node: ast.AST | None, own: set[str]) -> bool:
    """Whether it defines or stands for a function that is written here or one of `own`."""
    match node:
        case ast.Assign(value=value) | ast.AnnAssign(value=value):
            return _is_own(value, own)
        case ast.Call(ast.Name("partial") | ast.Attribute(attr="partial"), [first, *_]):
            return _is_own(first, own)
        case ast.Name(name):
            return name in own
    return isinstance(node, (*SCOPES, ast.Lambda))


def _is_work(node: ast.AST, own: set[str]) -> bool:
    """Whether a node does something; `own` are the functions whose calls alone do not."""
    if isinstance(node, ast.For | ast.While | ast.If | ast.Match):  # of an inner function
        return True
    if isinstance(node, _WORK):
        return not _is_constant(node)
    if isinstance(node, ast.Call):
        return not (_is_own(node.func, own) or _is_own(node, own))
    return False


def _is_constant(node: ast.AST) -> bool:
    """Whether an expression depends on nothing."""
    return not any(isinstance(n, ast.Name | ast.Call | ast.Attribute) for n in ast.walk(node))
