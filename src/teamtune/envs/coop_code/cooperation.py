"""Whether a team's entry point needs the helper, and whether it adds anything to it.

The first is tried: the program runs once more with a helper that returns something else, and the
helper is of use where a test stops passing. The second is read from the tree.
"""

import ast

from teamtune.envs.coop_code.flow import decisive, read
from teamtune.envs.coop_code.syntax import HELPER, parse

_ALTERED = """\
def __altered(helper):
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
    return lambda *given, **named: other(helper(*given, **named))
{name} = __altered({name})"""

ALTERATIONS = (
    _ALTERED.format(
        name=HELPER,
        number="value + 1",
        text='value + "x"',
        sequence="value + (value[-1:] or type(value)([0]))",
        members="value ^ {0}",
        mapping='{**value, "x": 0}',
    ),
    _ALTERED.format(
        name=HELPER,
        number="-value - 1000",
        text="value[:0]",
        sequence="value[:0]",
        members="value - value",
        mapping="{}",
    ),
)
"""Statements to put behind the helper, after which it returns values near the right ones, or far.

Values of the same kind, so that a program which only touches what it gets does not fail of it.
"""

_WORK = (
    ast.BinOp | ast.BoolOp | ast.UnaryOp | ast.Compare | ast.Subscript | ast.JoinedStr
    | ast.IfExp | ast.AugAssign | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
)  # fmt: skip


def adds_work(main: str, entry_point: str) -> bool:
    """Whether the entry point does more than to hand its arguments to the helper and back.

    Work is an operation, a comparison, an item, a loop, a condition, or a call of anything but the
    helper and functions of `main`, whose own work counts. It has to bear on the result: what cannot
    be reached or is not returned is none. Work that changes nothing, as in `aux(n) + 0`, still is.
    """
    tree = parse(main)
    functions = {f.name: f for f in tree.body if isinstance(f, ast.FunctionDef)} if tree else {}
    pending, seen = [entry_point], set[str]()
    while pending:
        name = pending.pop()
        if name in seen or name not in functions:
            continue
        seen.add(name)
        try:
            flows = decisive(functions[name])
            nodes = [node for flow in flows for value in flow.values for node in ast.walk(value)]
            own = {HELPER, *functions, *_defined_in(functions[name])}
            if any(not _is_constant(c) for f in flows for c in f.conditions) or any(
                _is_work(node, own) for node in nodes
            ):
                return True
        except RecursionError:  # a tree too deep to walk
            return False
        pending += read(nodes)
    return False


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
