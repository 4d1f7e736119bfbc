"""What the result of a function depends on, read from its tree.

The returned expressions, what is assigned to the names in them, and the conditions around either.
Unreachable statements and values that nobody returns are no part of it.
"""

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class Flow:
    """One statement: the names it gives a value, None where it leaves the function or a loop."""

    targets: frozenset[str] | None
    values: tuple[ast.AST, ...]
    conditions: tuple[ast.AST, ...]
    """The tests and iterables of the branches and loops that it stands in."""


def bound(node: ast.AST) -> list[str]:
    """The names to which this one node gives a meaning."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
            return [name]
        case ast.alias(name=name, asname=asname):
            return [(asname or name).partition(".")[0]]
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
            return [name]
        case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            return [name]
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            return names
    return []


def read(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The names that are read somewhere in `nodes`."""
    for part in (part for node in nodes for part in ast.walk(node)):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
            yield part.id


def reachable(function: ast.FunctionDef) -> list[Flow]:
    """Every statement of `function` that may run. May raise RecursionError."""
    found: list[Flow] = []
    _follow(function.body, (), found)
    return found


def decisive(function: ast.FunctionDef) -> list[Flow]:
    """Those on which the result of `function` depends. May raise RecursionError."""
    left, chosen, wanted = reachable(function), list[Flow](), set[str]()
    while True:
        more = [f for f in left if f.targets is None or f.targets & wanted]
        if not more:
            return chosen
        left = [f for f in left if f not in more]
        chosen += more
        wanted.update(read(node for f in more for node in (*f.values, *f.conditions)))


def _follow(body: Sequence[ast.stmt], within: tuple[ast.AST, ...], found: list[Flow]) -> bool:
    """Adds what may run of `body`; returns whether what stands behind it may run as well."""
    return all(_step(step, within, found) for step in body)


def _step(step: ast.stmt, within: tuple[ast.AST, ...], found: list[Flow]) -> bool:
    def add(targets: Iterable[ast.AST] | None, *values: ast.AST | None) -> None:
        names = None if targets is None else frozenset(n for t in targets for n in _names(t))
        found.append(Flow(names, tuple(v for v in values if v is not None), within))

    heads = (node for node in ast.iter_child_nodes(step) if isinstance(node, ast.expr))
    for node in (node for head in heads for node in ast.walk(head)):
        if isinstance(node, ast.NamedExpr):
            add([node.target], node.value)
    match step:
        case ast.Return(value):
            add(None, value)
            return False
        case ast.Raise() | ast.Break() | ast.Continue():
            add(None)
            return False
        case ast.If(ast.Constant(truth), body, orelse):
            return _follow(body if truth else orelse, within, found)
        case ast.If(test, body, orelse):
            branches = [_follow(part, (*within, test), found) for part in (body, orelse)]
            return any(branches)
        case ast.While(ast.Constant(truth) as test, body, orelse):
            _follow(body if truth else orelse, within, found)
            return not truth or any(isinstance(node, ast.Break) for node in ast.walk(step))
        case ast.While(test, body, orelse):
            _follow(body, (*within, test), found)
            return _follow(orelse, within, found)
        case ast.For(target, iterable, body, orelse) | ast.AsyncFor(target, iterable, body, orelse):
            add([target], iterable)
            start, items = len(found), set(_names(target))
            _follow(body, (*within, iterable), found)
            if any(items & (flow.targets or set()) for flow in found[start:]):
                add(
                    [iterable], *(ast.Name(name, ast.Load()) for name in items)
                )  # an item that changes changes what it is from
            return _follow(orelse, within, found)
        case ast.Try(body, handlers, orelse, final) | ast.TryStar(body, handlers, orelse, final):
            going = _follow(body, within, found) and _follow(orelse, within, found)
            going = any([going, *(_follow(h.body, within, found) for h in handlers)])
            return _follow(final, within, found) and going
        case ast.With(items, body) | ast.AsyncWith(items, body):
            for item in items:
                add([item.optional_vars] if item.optional_vars else (), item.context_expr)
            return _follow(body, within, found)
        case ast.Match(subject, cases):
            for case in cases:
                add([case.pattern], subject)
                _follow(case.body, (*within, subject), found)
        case ast.Assign(targets, value):
            add(targets, value, *(t for t in targets if not isinstance(t, ast.Name)))
        case ast.AugAssign(target):
            add([target], step)
        case ast.AnnAssign(target, _, value):
            add([target], value)
        case ast.Expr(ast.Yield() | ast.YieldFrom() as value):
            add(None, value)
        case ast.Expr(ast.Call(ast.Name("print"))):
            pass
        case ast.Expr(ast.Call(func, given) as value):
            add([func, *given], value)  # it may change what it is called on or given
        case ast.Delete(targets):
            add(targets, *targets)
        case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body) | ast.ClassDef(body=body):
            inner: list[Flow] = []
            _follow(body, (), inner)  # it may change what is outside
            outer = frozenset().union(*(flow.targets or () for flow in inner))
            found.append(Flow(outer | {step.name}, tuple(body), within))
    return True


def _names(target: ast.AST) -> list[str]:
    """The variables that may change where `target` is assigned to, called or given away."""
    while isinstance(target, ast.Attribute | ast.Subscript | ast.Starred | ast.Call):
        target = target.func if isinstance(target, ast.Call) else target.value
    if isinstance(target, ast.Name):
        return [target.id]
    if isinstance(target, ast.Tuple | ast.List):
        return [name for part in target.elts for name in _names(part)]
    if isinstance(target, ast.pattern):
        return [name for node in ast.walk(target) for name in bound(node)]
    return []
