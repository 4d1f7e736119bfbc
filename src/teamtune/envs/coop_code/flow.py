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
    found += _named_within(step, within)
    match step:
        case ast.Return() | ast.Raise() | ast.Break() | ast.Continue():
            found.append(_flow(within, None, step.value if isinstance(step, ast.Return) else None))
            return False
        case ast.If(ast.Constant(truth), body, orelse):
            return _follow(body if truth else orelse, within, found)
        case ast.If(test, body, orelse):
            branches = [_follow(part, (*within, test), found) for part in (body, orelse)]
            return any(branches)
        case ast.While(ast.Constant(truth), body, orelse):
            _follow(body if truth else orelse, within, found)
            return not truth or any(isinstance(node, ast.Break) for node in ast.walk(step))
        case ast.While(test, body, orelse):
            _follow(body, (*within, test), found)
            return _follow(orelse, within, found)
        case ast.For() | ast.AsyncFor():
            found += _loop(step, within)
            return _follow(step.orelse, within, found)
        case ast.Try(body, handlers, orelse, final) | ast.TryStar(body, handlers, orelse, final):
            going = _follow(body, within, found) and _follow(orelse, within, found)
            going = any([going, *(_follow(h.body, within, found) for h in handlers)])
            return _follow(final, within, found) and going
        case ast.With(items, body) | ast.AsyncWith(items, body):
            for item in items:
                names = [item.optional_vars] if item.optional_vars else []
                found.append(_flow(within, names, item.context_expr))
            return _follow(body, within, found)
        case ast.Match(subject, cases):
            for case in cases:
                found.append(_flow(within, [case.pattern], subject))
                _follow(case.body, (*within, subject), found)
        case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body) | ast.ClassDef(body=body):
            inner: list[Flow] = []
            _follow(body, (), inner)  # it may change what is outside
            outer = frozenset().union(*(flow.targets or () for flow in inner))
            found.append(Flow(outer | {step.name}, tuple(body), within))
        case _:
            found += _effect(step, within)
    return True


def _effect(step: ast.stmt, within: tuple[ast.AST, ...]) -> list[Flow]:
    """What a statement does that has no statements in it."""
    match step:
        case ast.Assign(targets, value):
            places = [target for target in targets if not isinstance(target, ast.Name)]
            return [_flow(within, targets, value, *places)]
        case ast.AugAssign(target):
            return [_flow(within, [target], step)]
        case ast.AnnAssign(target, _, value):
            return [_flow(within, [target], value)]
        case ast.Expr(ast.Yield() | ast.YieldFrom() as value):
            return [_flow(within, None, value)]
        case ast.Expr(ast.Call(ast.Name("print"))):
            return []
        case ast.Expr(ast.Call(func, given) as value):
            return [_flow(within, [func, *given], value)]  # it may change what it is called with
        case ast.Delete(targets):
            return [_flow(within, targets, *targets)]
    return []


def _loop(step: ast.For | ast.AsyncFor, within: tuple[ast.AST, ...]) -> list[Flow]:
    """A for loop; where an item changes, so does what it is taken from."""
    found = [_flow(within, [step.target], step.iter)]
    inner: list[Flow] = []
    _follow(step.body, (*within, step.iter), inner)
    items = set(_names(step.target))
    if any(items & (flow.targets or set()) for flow in inner):
        changed = (ast.Name(name, ast.Load()) for name in sorted(items))
        inner.append(_flow(within, [step.iter], *changed))
    return found + inner


def _named_within(step: ast.stmt, within: tuple[ast.AST, ...]) -> list[Flow]:
    """The names given values inside the expressions of a statement, by `:=`."""
    heads = (node for node in ast.iter_child_nodes(step) if isinstance(node, ast.expr))
    nodes = (node for head in heads for node in ast.walk(head))
    return [_flow(within, [n.target], n.value) for n in nodes if isinstance(n, ast.NamedExpr)]


def _flow(
    within: tuple[ast.AST, ...], targets: Iterable[ast.AST] | None, *values: ast.AST | None
) -> Flow:
    names = None if targets is None else frozenset(n for t in targets for n in _names(t))
    return Flow(names, tuple(value for value in values if value is not None), within)


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
