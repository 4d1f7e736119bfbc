"""The asserts of a HumanEval-style `check(candidate)` one by one, so that a share can be scored."""

import ast

from teamtune.sandbox.syntax_tree import parse_tree

_DEFINITIONS = ast.FunctionDef | ast.ClassDef | ast.Assign | ast.Import | ast.ImportFrom


def asserts_of_check(test: str, entry_point: str) -> list[str]:
    """The asserts in the body of `check`, with `candidate` replaced by `entry_point`.

    An assert takes along the statements before it that touch a name it uses, directly or through
    others, or that touch no name of the test at all (a seed, for instance). A loop or a branch that
    holds asserts, and a call of a function of the test that holds some, is one test as a whole (it
    cannot be protected). Asserts that no program could fail are left out: every program would get a
    share for them: of literals alone, of the function's mere existence, of a call and itself.

    Args:
        test: The source of the test module, HumanEval's field `test`.
        entry_point: The function under test.

    Raises:
        ValueError: No function `check` with one argument, or no assert in it that could fail.
    """
    try:
        found = _asserts_in(parse_tree(test), entry_point)
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"test of {entry_point}: {error}") from None
    if not found:
        raise ValueError(f"test of {entry_point}: check() has no assert that could fail")
    return found


def _asserts_in(module: ast.Module, entry_point: str) -> list[str]:
    checks = [s for s in module.body if isinstance(s, ast.FunctionDef) and s.name == "check"]
    if len(checks) != 1 or len(checks[0].args.args) != 1:
        raise ValueError("expected one function check(candidate)")
    renamed = _Rename(checks[0].args.args[0].arg, entry_point)
    at = module.body.index(checks[0])
    setup = [s for s in module.body[:at] + module.body[at + 1 :] if not _calls(s, {"check"})]
    found = []
    for statement in checks[0].body:
        step = renamed.visit(statement)
        if _is_test(step, setup):
            parts = [*_needed(setup, step), step]
            if not _cannot_fail(step) and any(_tries(part, entry_point) for part in parts):
                found.append("\n".join(map(ast.unparse, parts)))
        elif not isinstance(step, ast.Pass):
            setup.append(step)
    return found


class _Rename(ast.NodeTransformer):
    def __init__(self, old: str, new: str):
        self._old, self._new = old, new

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._new, node.ctx) if node.id == self._old else node


def _is_test(step: ast.stmt, setup: list[ast.stmt]) -> bool:
    """Whether running `step` tries asserts: it holds some, or calls a function that does."""
    if isinstance(step, ast.FunctionDef | ast.ClassDef):
        return False
    testers = {s.name for s in setup if isinstance(s, ast.FunctionDef) and _has_assert(s)}
    return _has_assert(step) or _calls(step, testers)


def _has_assert(step: ast.stmt) -> bool:
    return any(isinstance(node, ast.Assert) or _raises(node) for node in ast.walk(step))


def _raises(node: ast.AST) -> bool:
    """Whether it is `raise AssertionError`, with a message or without."""
    raised = node.exc if isinstance(node, ast.Raise) else None
    raised = raised.func if isinstance(raised, ast.Call) else raised
    return isinstance(raised, ast.Name) and raised.id == "AssertionError"


def _calls(step: ast.stmt, names: set[str]) -> bool:
    calls = (node.func for node in ast.walk(step) if isinstance(node, ast.Call))
    return any(isinstance(called, ast.Name) and called.id in names for called in calls)


def _cannot_fail(step: ast.stmt) -> bool:
    """An assert of literals alone, of a tuple, which is always true, or that a thing is itself."""
    if not isinstance(step, ast.Assert):
        return False
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


def _touched(step: ast.stmt) -> set[str]:
    """Names that a statement defines, changes or reads."""
    return _bound(step) | {node.id for node in ast.walk(step) if isinstance(node, ast.Name)}


def _bound(step: ast.stmt) -> set[str]:
    """Names that a statement gives a value."""
    if isinstance(step, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).partition(".")[0] for alias in step.names}
    if isinstance(step, ast.FunctionDef | ast.ClassDef):
        return {step.name}
    names = (node for node in ast.walk(step) if isinstance(node, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Store)}


def _needed(setup: list[ast.stmt], step: ast.stmt) -> list[ast.stmt]:
    """The statements of `setup` that `step` depends on, in order.

    One that gives no name a value, `items.append(1)` or `random.seed(0)`, may change what it
    touches; it comes along where that is wanted, or is a module.
    """
    modules = {n for s in setup if isinstance(s, ast.Import | ast.ImportFrom) for n in _bound(s)}
    chosen: list[ast.stmt] = []
    wanted = _touched(step)
    for earlier in reversed(setup):
        bound, touched = _bound(earlier), _touched(earlier)
        changes = bound if bound and isinstance(earlier, _DEFINITIONS) else touched
        if changes & wanted or (not bound and touched & modules):
            chosen.append(earlier)
            wanted |= _touched(earlier)
    return chosen[::-1]
