"""Whether a team's entry point needs the helper, and whether it adds anything to it.

It needs the helper where a test that holds does not where the helper returns another value. A test
that raises then tells nothing: a value that is only touched can break a program, too.
"""

import ast
from collections.abc import Iterable

from teamtune.envs.answers import parse
from teamtune.envs.coop_code.flow import SCOPES, decisive, flows_of
from teamtune.envs.coop_code.syntax import HELPER

_ALTERED = """\
def __altered(helper):
    from functools import wraps
    def other(value):
        if isinstance(value, bool):
            return not value
        if isinstance(value, (int, float, complex)):
            return {number}
        if isinstance(value, (str, bytes)):
            return {text}
        if isinstance(value, (list, tuple)):
            return {sequence}
        if isinstance(value, dict):
            return {mapping}
        if hasattr(value, "__next__"):
            return map(other, value)
        if hasattr(value, "__iter__"):
            return set(map(other, value))
        if callable(value):
            return lambda *given, **named: other(value(*given, **named))
        return 0 if value is None else None
    return wraps(helper)(other(helper))
{name} = __altered({name})"""

ALTERATIONS = (
    _ALTERED.format(
        name=HELPER,
        number="0 if value else 1",
        text="value[:0] if value else type(value)(1)",
        sequence="value[:0] if value else type(value)([0])",
        mapping='{} if value else {"x": 0}',
    ),
    _ALTERED.format(
        name=HELPER,
        number="-value - 1000",
        text="value[::-1]",
        sequence="type(value)(map(other, value))",
        mapping="{key: other(of) for key, of in value.items()}",
    ),
    _ALTERED.format(
        name=HELPER,
        number="value + 1001",
        text="value + value",
        sequence="value + value",
        mapping="{key: other(of) for key, of in value.items()}",
    ),
)
"""Statements to put behind the helper, after which it returns other values of the same kind.

Empty or zero against something, then far on either side: a condition on the value has to turn.
"""

_WORK = (
    ast.BinOp | ast.BoolOp | ast.UnaryOp | ast.Compare | ast.Subscript | ast.JoinedStr
    | ast.IfExp | ast.AugAssign | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
)  # fmt: skip


def adds_work(program: str, entry_point: str) -> bool:
    """Whether the entry point does more than to hand its arguments to the helper and back.

    Work is an operation, a comparison, an item, a condition, a loop, a second call of the helper,
    or a call of anything but the helper and functions of `program`, whose own work counts, or what
    stands for one of them. It has to bear on the result, as far as names tell. Work that changes
    nothing, as in `aux(n) + 0`, still is.
    """
    tree = parse(program)
    if tree is None:
        return False
    values, conditions = decisive(flows_of(tree), entry_point, beyond=HELPER)
    nodes = [node for value in values for node in ast.walk(value)]
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    own, varying = _own(tree), _varying([*values, *conditions])
    return (
        sum(isinstance(call.func, ast.Name) and call.func.id == HELPER for call in calls) > 1
        or any(test in varying for test in conditions)
        or any(isinstance(node, _WORK) and node in varying for node in nodes)
        or any(not (_is_own(call.func, own) or _is_own(call, own)) for call in calls)
    )


def _varying(roots: Iterable[ast.AST]) -> set[ast.AST]:
    """The nodes of expressions that depend on anything."""
    varying = set[ast.AST]()
    for root in roots:
        for node in reversed(list(ast.walk(root))):  # parts before wholes
            if isinstance(node, ast.Name | ast.Call | ast.Attribute) or any(
                part in varying for part in ast.iter_child_nodes(node)
            ):
                varying.add(node)
    return varying


def _own(tree: ast.Module) -> set[str]:
    """The helper, the functions and classes of a program, and the names that stand for one."""
    own = {HELPER}
    for node in ast.walk(tree):
        match node:
            case ast.Assign([ast.Name(name)], value) | ast.AnnAssign(ast.Name(name), _, value):
                (own.add if _is_own(value, own) else own.discard)(name)
        if isinstance(node, SCOPES):
            own.add(node.name)
    return own


def _is_own(node: ast.AST | None, own: set[str]) -> bool:
    """Whether it stands for a function that is written here or one of `own`."""
    match node:
        case ast.Call(ast.Name("partial") | ast.Attribute(attr="partial"), [first, *_]):
            return _is_own(first, own)
        case ast.Name(name):
            return name in own
    return isinstance(node, ast.Lambda)
