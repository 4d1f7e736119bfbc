"""The asserts of a HumanEval-style `check(candidate)` one by one, so that a share can be scored."""

import ast
from dataclasses import dataclass

from teamtune.sandbox.asserts import take_apart
from teamtune.sandbox.syntax_tree import LONGEST_TEST, parse_tree

_DEFINITIONS = ast.FunctionDef | ast.ClassDef | ast.Assign | ast.Import | ast.ImportFrom


def asserts_of_check(test: str, entry_point: str) -> list[str]:
    """The asserts in the body of `check`, with `candidate` replaced by `entry_point`.

    An assert takes along the statements before it that touch a name it uses, directly or through
    others, or that touch no name of the test at all (a seed, for instance). Left out is what only
    the program's own process could decide, loops and branches that hold asserts for instance, and
    asserts that no program could fail: every program would get a share for them: of literals alone,
    of the function's mere existence, of a call and itself.

    Args:
        test: The source of the test module, HumanEval's field `test`.
        entry_point: The function under test.

    Raises:
        ValueError: No function `check` with one argument, or no assert in it that is left.
    """
    try:
        found = _asserts_in(parse_tree(test, longest=LONGEST_TEST), entry_point)
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"test of {entry_point}: {error}") from None
    if not found:
        raise ValueError(
            f"test of {entry_point}: check() has no assert that could fail and be trusted"
        )
    return found


def _asserts_in(module: ast.Module, entry_point: str) -> list[str]:
    checks = [s for s in module.body if isinstance(s, ast.FunctionDef) and s.name == "check"]
    if len(checks) != 1 or len(checks[0].args.args) != 1:
        raise ValueError("expected one function check(candidate)")
    renamed = _Rename(checks[0].args.args[0].arg, entry_point)
    others = [s for s in module.body if s is not checks[0] and not _calls(s, {"check"})]
    setup = [_Statement.of(step) for step in others]
    found: list[str] = []
    for statement in checks[0].body:
        step = _Statement.of(renamed.visit(statement))
        if not step.is_test({name for s in setup if s.is_tester for name in s.bound}):
            setup.append(step)
        elif isinstance(step.node, ast.Assert) and not _cannot_fail(step.node):
            parts = [*_needed(setup, step), step]
            source = "\n".join(part.source for part in parts)
            if sum(map(len, found)) + len(source) > LONGEST_TEST:
                raise ValueError("its asserts take too many statements along")
            if any(_tries(part.node, entry_point) for part in parts) and take_apart(source):
                found.append(source)
    return found


@dataclass(frozen=True, slots=True)
class _Statement:
    """A statement and what is asked about it again and again."""

    node: ast.stmt
    source: str
    bound: frozenset[str]
    """Names that it gives a value."""
    touched: frozenset[str]
    """Names that it defines, changes or reads."""
    has_assert: bool

    @classmethod
    def of(cls, node: ast.stmt) -> "_Statement":
        names = [part for part in ast.walk(node) if isinstance(part, ast.Name)]
        bound = frozenset(_bound(node, names))
        touched = bound | {name.id for name in names}
        has_assert = any(isinstance(n, ast.Assert) or _raises(n) for n in ast.walk(node))
        return cls(node, ast.unparse(node), bound, touched, has_assert)

    @property
    def is_tester(self) -> bool:
        """Whether it is a function that asserts."""
        return self.has_assert and isinstance(self.node, ast.FunctionDef)

    def is_test(self, testers: set[str]) -> bool:
        """Whether running it tries asserts: it holds some, or calls a function that does."""
        if isinstance(self.node, ast.FunctionDef | ast.ClassDef):
            return False
        return self.has_assert or bool(testers & self.touched and _calls(self.node, testers))


class _Rename(ast.NodeTransformer):
    def __init__(self, old: str, new: str):
        self._old, self._new = old, new

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._new, node.ctx) if node.id == self._old else node


def _raises(node: ast.AST) -> bool:
    """Whether it is `raise AssertionError`, with a message or without."""
    raised = node.exc if isinstance(node, ast.Raise) else None
    raised = raised.func if isinstance(raised, ast.Call) else raised
    return isinstance(raised, ast.Name) and raised.id == "AssertionError"


def _calls(step: ast.stmt, names: set[str]) -> bool:
    calls = (node.func for node in ast.walk(step) if isinstance(node, ast.Call))
    return any(isinstance(called, ast.Name) and called.id in names for called in calls)


def _cannot_fail(step: ast.Assert) -> bool:
    """An assert of literals alone, of a tuple, which is always true, or that a thing is itself."""
    names = any(isinstance(node, ast.Name) for node in ast.walk(step.test))
    if isinstance(step.test, ast.Compare) and isinstance(step.test.ops[0], ast.Eq):
        sides = [step.test.left, *step.test.comparators]
        if len({ast.dump(side) for side in sides}) == 1:
            return True
    return not names or (isinstance(step.test, ast.Tuple) and bool(step.test.elts))


def _tries(step: ast.stmt, entry_point: str) -> bool:
    """Whether a statement calls the function, or hands it to another one or to a loop."""
    given: list[ast.expr] = []
    for node in ast.walk(step):
        match node:
            case ast.Call(ast.Name("callable")):
                continue
            case ast.Call(func, args, keywords):
                given += [func, *args, *(keyword.value for keyword in keywords)]
            case ast.For(iter=iterable) | ast.comprehension(iter=iterable):
                given.append(iterable)
    parts = [part for node in given for part in getattr(node, "elts", [node])]
    return any(isinstance(part, ast.Name) and part.id == entry_point for part in parts)


def _bound(step: ast.stmt, names: list[ast.Name]) -> set[str]:
    if isinstance(step, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).partition(".")[0] for alias in step.names}
    if isinstance(step, ast.FunctionDef | ast.ClassDef):
        return {step.name}
    return {name.id for name in names if isinstance(name.ctx, ast.Store)}


def _needed(setup: list[_Statement], step: _Statement) -> list[_Statement]:
    """The statements of `setup` that `step` depends on, in order.

    One that gives no name a value, `items.append(1)` or `random.seed(0)`, may change what it
    touches; it comes along where that is wanted, or is a module.
    """
    imports = (s for s in setup if isinstance(s.node, ast.Import | ast.ImportFrom))
    modules = {name for s in imports for name in s.bound}
    chosen: list[_Statement] = []
    wanted = set(step.touched)
    for earlier in reversed(setup):
        bound = earlier.bound
        changes = bound if bound and isinstance(earlier.node, _DEFINITIONS) else earlier.touched
        if not changes.isdisjoint(wanted) or not (bound or earlier.touched.isdisjoint(modules)):
            chosen.append(earlier)
            wanted |= earlier.touched
    return chosen[::-1]
