"""The asserts of a HumanEval-style `check(candidate)` one by one, so that a share can be scored."""

import ast


def asserts_of_check(test: str, entry_point: str) -> list[str]:
    """The asserts in the body of `check`, with `candidate` replaced by `entry_point`.

    An assert takes along the statements before it whose names it uses. A loop or a branch that
    holds asserts is one test as a whole (it cannot be protected). `assert True` is left out: every
    program would get a share for it.

    Args:
        test: The source of the test module, HumanEval's field `test`.
        entry_point: The function under test.

    Raises:
        ValueError: No function `check` with one argument, or no assert in it.
    """
    try:
        module = ast.parse(test)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"test of {entry_point}: does not parse ({error})") from None
    checks = [s for s in module.body if isinstance(s, ast.FunctionDef) and s.name == "check"]
    if len(checks) != 1 or len(checks[0].args.args) != 1:
        raise ValueError(f"test of {entry_point}: expected one function check(candidate)")
    renamed = _Rename(checks[0].args.args[0].arg, entry_point)
    setup = [s for s in module.body if s is not checks[0] and _binds(s)]
    found = []
    for statement in checks[0].body:
        step = renamed.visit(statement)
        if any(isinstance(node, ast.Assert) for node in ast.walk(step)):
            if not _is_trivial(step):
                found.append("\n".join(map(ast.unparse, [*_needed(setup, step), step])))
        elif _binds(step):
            setup.append(step)
    if not found:
        raise ValueError(f"test of {entry_point}: check() has no assert")
    return found


class _Rename(ast.NodeTransformer):
    def __init__(self, old: str, new: str):
        self._old, self._new = old, new

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._new, node.ctx) if node.id == self._old else node


def _is_trivial(step: ast.stmt) -> bool:
    """`assert True`, which holds for every program."""
    match step:
        case ast.Assert(test=ast.Constant(value=value)):
            return bool(value)
    return False


def _binds(step: ast.stmt) -> set[str]:
    """Names that a statement defines."""
    names = {
        node.id
        for node in ast.walk(step)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    if isinstance(step, ast.Import | ast.ImportFrom):
        names |= {(alias.asname or alias.name).partition(".")[0] for alias in step.names}
    if isinstance(step, ast.FunctionDef | ast.ClassDef):
        names.add(step.name)
    return names


def _needed(setup: list[ast.stmt], step: ast.stmt) -> list[ast.stmt]:
    """The statements of `setup` that `step` needs, directly or through others, in order."""
    chosen: list[ast.stmt] = []
    wanted = _uses(step)
    for earlier in reversed(setup):
        if _binds(earlier) & wanted:
            chosen.append(earlier)
            wanted |= _uses(earlier)
    return chosen[::-1]


def _uses(step: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(step) if isinstance(node, ast.Name)}
