"""The live part of a function: its tree without what cannot run and what changes nothing.

Decided on the tree alone: whatever depends on values counts as live.
"""

import ast
import operator
from collections.abc import Iterable, Iterator
from typing import Any

UNTELLABLE = (RecursionError, ValueError)
"""What a function too deep to walk raises here, and one with a number too long to write."""
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_ASSIGNMENTS = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.NamedExpr)
_SIMPLE = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr)
_INERT = (
    ast.Tuple, ast.List, ast.Set, ast.Dict, ast.BinOp, ast.BoolOp, ast.UnaryOp, ast.Compare,
    ast.Attribute, ast.Subscript, ast.Slice, ast.Starred, ast.IfExp, ast.Name, ast.Constant,
    ast.JoinedStr, ast.FormattedValue,
)  # fmt: skip
"""Expressions that do nothing themselves where nobody takes their value."""
_PURE = frozenset(
    ("print", "len", "str", "int", "float", "bool", "repr", "type", "isinstance", "id", "hash")
    + ("abs", "list", "tuple", "set", "dict", "sorted", "sum", "min", "max", "map", "filter")
    + ("range", "zip", "enumerate", "reversed", "round", "iter", "callable")
)
_COMPARED: dict[type, Any] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Is: operator.eq, ast.IsNot: operator.ne,
}  # fmt: skip
_FAR = 20
"""So many statements after a value are searched for another in its place."""
_ROUNDS = 8
"""What goes in one round can make more of a function dead; so often at most."""


def live(function: ast.FunctionDef) -> ast.FunctionDef:
    """Leaves only the live part of `function`, in place. May raise any of UNTELLABLE."""
    before = ""
    for _ in range(_ROUNDS):
        remover = _Remover(_needed(function.body))
        remover.generic_visit(function)
        after = ast.dump(function)
        if after == before:
            break
        before = after
    return function


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


def read(nodes: Iterable[ast.AST]) -> Iterator[ast.Name]:
    """The names that are read somewhere in `nodes`."""
    for part in (part for node in nodes for part in ast.walk(node)):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
            yield part


class _Remover(ast.NodeTransformer):
    """Takes out of a function what is dead in it; `needed` are the names that somebody reads."""

    def __init__(self, needed: set[str]):
        self._needed = needed

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for name in ("body", "orelse", "finalbody"):
            steps = getattr(node, name, None)
            if isinstance(steps, list):
                setattr(node, name, _without_dead(steps))
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST | None:
        node.returns = None
        return self.generic_visit(node) if node.name in self._needed else None

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST | None:
        return node if node.name in self._needed else None

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_If(self, node: ast.If) -> Any:
        self.generic_visit(node)
        truth = _truth(node.test)
        if truth is not None:
            return node.body if truth else node.orelse
        if _same(node.body, node.orelse):
            return [*_drop(node.test), *node.body]
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        truth = _truth(node.test)
        if truth is not None:
            return node.body if truth else node.orelse
        return node.body if _same([node.body], [node.orelse]) else node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        deciding = isinstance(node.op, ast.Or)
        kept: list[ast.expr] = []
        for i, value in enumerate(node.values):
            truth = _truth(value)
            if truth is None or truth is deciding or i == len(node.values) - 1:
                kept.append(value)
            if truth is deciding:
                break
        node.values = kept
        return node if len(kept) > 1 else kept[0]

    def visit_While(self, node: ast.While) -> Any:
        self.generic_visit(node)
        truth = _truth(node.test)
        if truth is False:
            return node.orelse
        once = truth and node.body and isinstance(node.body[-1], ast.Return)
        jumps = (isinstance(n, ast.Break | ast.Continue) for s in node.body for n in ast.walk(s))
        return node.body if once and not any(jumps) else node

    def visit_For(self, node: ast.For) -> Any:
        self.generic_visit(node)
        if _truth(node.iter) is False:
            return node.orelse
        if not node.body and not node.orelse and _stores(node) is not None:
            return node if self._matter(node) else _drop(node.iter)
        return node

    def visit_Pass(self, node: ast.Pass) -> None:
        return None

    def visit_Assert(self, node: ast.Assert) -> Any:
        self.generic_visit(node)
        return _drop(node.test)

    def visit_Expr(self, node: ast.Expr) -> Any:
        self.generic_visit(node)
        return _drop(node.value)

    def visit_Assign(self, node: ast.Assign | ast.AugAssign) -> Any:
        self.generic_visit(node)
        return node if _stores(node) is None or self._matter(node) else _drop(node.value)

    visit_AugAssign = visit_Assign

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if node.value is None:
            return None
        return self.visit_Assign(ast.copy_location(ast.Assign([node.target], node.value), node))

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.AST:
        self.generic_visit(node)
        return node if self._matter(node) else node.value

    def _matter(self, node: ast.AST) -> bool:
        return bool((_stores(node) or set()) & self._needed)


def _stores(node: ast.AST) -> set[str] | None:
    """The variables that an assignment sets; None where it may change more than variables."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]  # type: ignore[attr-defined]
    parts = [part for target in targets for part in ast.walk(target)]
    if any(isinstance(part, ast.Attribute | ast.Subscript) for part in parts):
        return None
    return {part.id for part in parts if isinstance(part, ast.Name)}


def _needed(steps: list[ast.stmt]) -> set[str]:
    """The names that something reads which is needed itself; a name's own definition is not."""
    given: list[tuple[set[str], set[str]]] = []
    inside: set[ast.AST] = set()
    needed: set[str] = set()
    for node in (node for step in steps for node in ast.walk(step)):
        if isinstance(node, ast.Global | ast.Nonlocal):
            needed |= set(node.names)
        names: set[str] | None = None
        value: ast.AST = node
        if isinstance(node, SCOPES):
            names = {node.name}
        elif isinstance(node, _ASSIGNMENTS) and node.value is not None:
            names, value = _stores(node), node.value
        if names is not None:
            given.append((names, {name.id for name in read([value])}))
            inside |= set(read([value]))
    needed |= {name.id for name in read(steps) if name not in inside}
    size = -1
    while size != len(needed):
        size = len(needed)
        for names, used in reversed(given):
            needed |= used if names & needed else set()
    return needed


def _without_dead(steps: list[ast.stmt]) -> list[ast.stmt]:
    """A block up to the statement that leaves it, without values that are overwritten unread."""
    kept: list[ast.stmt] = []
    for i, step in enumerate(steps):
        rest = steps[i + 1 :]
        if isinstance(step, ast.If) and leaves(step.body) and _same(step.body, rest):
            return [*kept, *_drop(step.test), *rest]  # either way the same follows
        if isinstance(step, ast.Assign) and _overwritten(step, rest):
            kept += _drop(step.value)
            continue
        kept.append(step)
        if leaves([step]):
            break
    return kept


def _overwritten(step: ast.Assign, rest: list[ast.stmt]) -> bool:
    """Whether the statements after `step` set its variables anew before anybody reads them."""
    names = _stores(step)
    for after in rest[:_FAR]:
        if not names or not isinstance(after, _SIMPLE) or {n.id for n in read([after])} & names:
            return False
        if isinstance(after, ast.AugAssign) and _stores(after) != set():
            return False
        if isinstance(after, ast.Assign):
            names = names - (_stores(after) or set())
            if not names:
                return True
    return False


def leaves(steps: list[ast.stmt]) -> bool:
    """Whether nothing runs after these statements of a block."""
    return any(map(_leaves, steps))


def _leaves(step: ast.stmt) -> bool:
    match step:
        case ast.Return() | ast.Raise() | ast.Break() | ast.Continue():
            return True
        case ast.If(body=body, orelse=orelse):
            return leaves(body) and leaves(orelse)
        case ast.While(test=test, body=body):
            return _truth(test) is True and not any(map(_breaks, body))
        case ast.Try(body=body, handlers=handlers, orelse=orelse, finalbody=final):
            tried = leaves(body) or leaves(orelse)
            return leaves(final) or (tried and all(leaves(h.body) for h in handlers))
        case ast.With(items=items, body=body):
            return leaves(body) and "suppress" not in "".join(map(ast.dump, items))
        case ast.Match(cases=cases):
            last = cases[-1]
            whole = isinstance(last.pattern, ast.MatchAs) and not last.pattern.pattern
            return whole and not last.guard and all(leaves(case.body) for case in cases)
    return False


def _breaks(step: ast.AST) -> bool:
    """Whether a statement of a loop's body can end the loop."""
    if isinstance(step, ast.Break):
        return True
    if isinstance(step, (ast.For, ast.While, *SCOPES)):
        return False
    return any(map(_breaks, ast.iter_child_nodes(step)))


def _truth(node: ast.expr) -> bool | None:
    """What a condition is where literals decide it, None where it depends on more."""
    match node:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            truth = _truth(operand)
            return None if truth is None else not truth
        case ast.BoolOp(op=op, values=values):
            truths = [_truth(value) for value in values]
            deciding = isinstance(op, ast.Or)
            return deciding if deciding in truths else None if None in truths else not deciding
    try:
        match node:
            case ast.Compare(left=left, ops=[sign], comparators=[right]) if type(sign) in _COMPARED:
                compare = _COMPARED[type(sign)]
                return bool(compare(ast.literal_eval(left), ast.literal_eval(right)))
        return bool(ast.literal_eval(node))
    except (ValueError, TypeError, SyntaxError, MemoryError):
        return None


def _same(some: list[Any], others: list[Any]) -> bool:
    return len(some) == len(others) and all(
        type(a) is type(b) and ast.dump(a) == ast.dump(b) for a, b in zip(some, others)
    )


def _drop(value: ast.expr) -> list[ast.stmt]:
    """What is left to do of an expression whose value nobody takes: the calls in it, dropped."""
    pure = isinstance(value, ast.Call) and isinstance(value.func, ast.Name)
    if pure and value.func.id in _PURE:  # type: ignore[attr-defined]
        parts = [*value.args, *(word.value for word in value.keywords)]  # type: ignore[attr-defined]
    elif isinstance(value, ast.Lambda | ast.GeneratorExp):
        parts = []
    elif isinstance(value, ast.ListComp | ast.SetComp):
        parts = [value.elt]
        parts += [part for loop in value.generators for part in (loop.iter, *loop.ifs)]
    elif isinstance(value, _INERT):
        parts = [part for part in ast.iter_child_nodes(value) if isinstance(part, ast.expr)]
    else:
        return [ast.copy_location(ast.Expr(value), value)]
    return [step for part in parts for step in _drop(part)]
