"""What the value of a name is made of, read from a program's tree.

Names are followed through assignments, calls that may change their arguments, and results of
functions, wherever they stand: scopes and order do not count, but for what follows a `return`.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_BODIES = (ast.stmt, ast.excepthandler, ast.match_case, ast.withitem)
_LEAVING = (ast.Return, ast.Raise, ast.Break, ast.Continue)


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """The test, iterable or subject of a branch or loop, and the one that it stands in."""

    test: ast.expr
    within: "Condition | None"


@dataclass(frozen=True, slots=True, eq=False)
class Flow:
    """What one statement gives to a name."""

    values: Sequence[ast.AST]
    within: Condition | None


def flows_of(tree: ast.Module) -> Mapping[str, list[Flow]]:
    """The flows into each name; into a function's what it returns, into a class's its methods'."""
    flows = defaultdict[str, list[Flow]](list)
    pending: list[tuple[ast.AST, str, Condition | None]] = [(tree, "", None)]
    for node, owner, within in pending:
        for targets, values in _effects(node):
            for name in [owner] if targets is None else targets:
                flows[name].append(Flow(values, within))
        match node:
            case ast.If(test) | ast.While(test) | ast.For(_, test) | ast.Match(test):
                within = Condition(test, within)
        for step in _steps(node):
            if isinstance(step, SCOPES):
                pending.append((step, owner if isinstance(node, ast.ClassDef) else step.name, None))
            else:
                pending.append((step, owner, within))
    return flows


def decisive(
    flows: Mapping[str, list[Flow]], name: str, beyond: str
) -> tuple[list[ast.AST], list[ast.AST]]:
    """The values and the conditions on which `name` depends; `beyond` is not followed."""
    values, conditions = list[ast.AST](), list[ast.AST]()
    names, seen, done = [name], {name, beyond}, set[Flow | Condition]()
    for flow in (flow for known in names for flow in flows.get(known, ())):  # names grow
        if flow in done:
            continue
        done.add(flow)
        tests, within = list[ast.AST](), flow.within
        while within is not None and within not in done:
            done.add(within)
            tests.append(within.test)
            within = within.within
        values += flow.values
        conditions += tests
        new = dict.fromkeys(n for n in read([*flow.values, *tests]) if n not in seen)
        names += new
        seen.update(new)
    return values, conditions


def read(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The names that are read somewhere in `nodes`."""
    for part in (part for node in nodes for part in ast.walk(node)):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
            yield part.id


def _steps(node: ast.AST) -> Iterator[ast.AST]:
    """The statements, handlers and cases within a node, up to what leaves their block."""
    for _, body in ast.iter_fields(node):
        for step in body if isinstance(body, list) else ():
            if isinstance(step, _BODIES):
                yield step
            if isinstance(step, _LEAVING):
                break


def _effects(step: ast.AST) -> Iterator[tuple[list[str] | None, Sequence[ast.AST]]]:
    """The names to which a statement gives something, and what; None for the function's result."""
    heads = [node for node in ast.iter_child_nodes(step) if isinstance(node, ast.expr)]
    for node in (node for head in heads for node in ast.walk(head)):
        if isinstance(node, ast.NamedExpr):
            yield _names([node.target]), [node.value]
    match step:
        case ast.Return(ast.expr() as value) | ast.Expr(ast.Yield() | ast.YieldFrom() as value):
            yield None, [value]
        case ast.Raise() | ast.Break() | ast.Continue():  # which the conditions around it decide
            yield None, []
        case ast.Expr(ast.Call(ast.Name("print"))):
            pass
        case ast.Expr(ast.Call(func, given) as value):  # may change what it is called with
            yield _names([func, *given]), [value]
        case ast.Assign(targets, value):
            yield _names(targets), [value, *(t for t in targets if not isinstance(t, ast.Name))]
        case ast.AugAssign(target):
            yield _names([target]), [step]
        case ast.AnnAssign(target, _, ast.expr() as value) | ast.withitem(value, target):
            yield _names([target]), [value]
        case ast.Delete(targets):
            yield _names(targets), targets
        case ast.For(target, items):  # where an item changes, so does what it is taken from
            yield _names([target]), [items]
            yield _names([items]), [ast.Name(name, ast.Load()) for name in _names([target])]
        case ast.Match(subject, cases):
            nodes = (node for case in cases for node in ast.walk(case.pattern))
            yield [n.name for n in nodes if isinstance(n, ast.MatchAs) and n.name], [subject]


def _names(targets: Iterable[ast.AST | None]) -> list[str]:
    """The variables that may change where `targets` are assigned to, called or given away."""
    names, pending = [], list(targets)
    for target in pending:
        match target:
            case ast.Name(name):
                names.append(name)
            case ast.Attribute(of) | ast.Subscript(of) | ast.Starred(of) | ast.Call(of):
                pending.append(of)
            case ast.Tuple(parts) | ast.List(parts):
                pending += parts
    return names
