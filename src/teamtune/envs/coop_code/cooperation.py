"""Whether a team's entry point needs the helper, and whether it adds anything to it.

It needs the helper where its result depends on it as the tree shows, and as a trial does: the
program runs once more with a helper that returns something else, and a test stops passing.
"""

import ast
from collections.abc import Iterator

from teamtune.envs.coop_code.flow import SCOPES, Flow, decisive, read
from teamtune.envs.coop_code.syntax import HELPER, parse

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
    or a call of anything but the helper and functions of `main`, whose own work counts. It has to
    bear on the result: what cannot be reached or is not returned is none. Work that changes
    nothing, as in `aux(n) + 0`, still is.
    """
    try:
        return any(
            _works(flows, {HELPER, *_scopes(main), *_defined_in(function)})
            for function, flows in _involved(main, entry_point)
        )
    except RecursionError:  # too deep to walk
        return False


def _involved(main: str, entry_point: str) -> Iterator[tuple[ast.FunctionDef, list[Flow]]]:
    """The entry point and what it calls in `main`, with the flows that decide the result of each.

    May raise RecursionError.
    """
    known = _scopes(main)
    pending, seen = [entry_point], set[str]()
    while pending:
        name = pending.pop()
        if name in seen or name not in known:
            continue
        seen.add(name)
        scope = known[name]
        for function in scope.body if isinstance(scope, ast.ClassDef) else [scope]:
            if isinstance(function, ast.FunctionDef):
                flows = decisive(function)
                yield function, flows
                pending += read(_nodes(flows))


def _scopes(main: str) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """The functions and classes at the top level, by name."""
    tree = parse(main)
    return {step.name: step for step in (tree.body if tree else []) if isinstance(step, SCOPES)}


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


def _defined_in(function: ast.FunctionDef) -> set[str]:
    """The names of its inner functions."""
    names = set()
    for node in ast.walk(function):
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def _is_work(node: ast.AST, own: set[str]) -> bool:
    """Whether a node does something; `own` are the functions whose calls alone do not."""
    if isinstance(node, ast.For | ast.While | ast.If | ast.Match):  # of an inner function
        return True
    if isinstance(node, _WORK):
        return not _is_constant(node)
    if isinstance(node, ast.Call):
        called = node.func
        return not (
            isinstance(called, ast.Lambda) or (isinstance(called, ast.Name) and called.id in own)
        )
    return False


def _is_constant(node: ast.AST) -> bool:
    """Whether an expression depends on nothing."""
    return not any(isinstance(n, ast.Name | ast.Call | ast.Attribute) for n in ast.walk(node))
