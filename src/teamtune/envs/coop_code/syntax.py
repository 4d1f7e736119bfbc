"""Programs put together and taken apart, and what they define.

Pure functions of source text, which raise for none: whatever does not parse defines nothing.
"""

import ast
from collections.abc import Iterable, Iterator

from teamtune.envs.answers import blocks_of, code_of, parse
from teamtune.envs.coop_code.flow import SCOPES, flows_of, read

HELPER = "aux"
"""The helper's name, which both agents are told."""
_IMPORTS = (ast.Import, ast.ImportFrom)
_DEFINING = (*SCOPES, *_IMPORTS, ast.Assign, ast.AnnAssign)


def returns_value(source: str, name: str) -> bool:
    """Whether `source` defines a function `name`, which returns something but None somewhere.

    The definition must be the last meaning that the top level gives to the name.
    """
    function = _function(parse(source), name)
    flows = flows_of(ast.Module([function], [])).get(name, []) if function else []
    values = [value for flow in flows for value in flow.values]
    return any(not (isinstance(v, ast.Constant) and v.value is None) for v in values)


def split_program(answer: str) -> tuple[str, str]:
    """What one agent wrote for both: all up to the end of `aux`, and all that follows.

    The first is empty where `aux` is not defined. Of several blocks those that define something
    are joined.
    """
    blocks = [block for block in blocks_of(answer) if _holds(parse(block), _DEFINING)]
    source = "\n\n".join(blocks) if blocks else code_of(answer)
    helper = _function(parse(source), HELPER)
    if helper is None:
        return "", source
    lines = source.split("\n")
    parts = (lines[: helper.end_lineno], lines[helper.end_lineno :])
    return "\n".join(parts[0]).strip("\n"), "\n".join(parts[1]).strip("\n")


def join(parts: Iterable[str]) -> str:
    """One program of several; imports from `__future__` go first, as they must."""
    futures, rest = list[str](), list[str]()
    for part in parts:
        tree = parse(part) if "__future__" in part else None
        found = [
            step
            for step in (tree.body if tree else [])
            if isinstance(step, ast.ImportFrom) and step.module == "__future__"
        ]
        futures += map(ast.unparse, found)
        rest.append(_without(part, found))
    return "\n\n".join(part for part in (*dict.fromkeys(futures), *rest) if part) + "\n"


def preamble_of(prompt: str, entry_point: str) -> str:
    """What a problem's prompt defines beside the entry point: imports and given functions.

    Of a prompt that does not parse, the lines at its top level that import something.
    """
    prompt, tree = _completed(prompt)
    if tree is None:
        return "\n".join(line for line in prompt.split("\n") if _holds(parse(line), _IMPORTS))
    return _without(
        prompt, [s for s in tree.body if isinstance(s, ast.FunctionDef) and s.name == entry_point]
    )


def given_of(prompt: str, entry_point: str) -> str:
    """The functions that a prompt gives complete, with its imports; empty where it gives none.

    A function without more than a docstring is for the agents to write.
    """
    prompt, tree = _completed(prompt)
    body = tree.body if tree else []
    given = [
        step
        for step in body
        if isinstance(step, ast.FunctionDef)
        and step.name not in (entry_point, HELPER)
        and not all(isinstance(inner, ast.Expr | ast.Pass) for inner in step.body)
    ]
    kept = [*given, *(step for step in body if given and isinstance(step, _IMPORTS))]
    return _without(prompt, [step for step in body if step not in kept]) if given else ""


def names_bound(source: str) -> set[str]:
    """All names to which `source` gives a meaning somewhere."""
    tree = parse(source)
    return set(_bound(tree)) if tree else set()


def names_read(source: str) -> set[str]:
    """All names that `source` reads somewhere."""
    tree = parse(source)
    return set(read([tree])) if tree else set()


def _completed(prompt: str) -> tuple[str, ast.Module | None]:
    """A prompt and its tree; one that ends in a bare signature gets a body."""
    for source in (prompt, f"{prompt.rstrip()}\n    pass\n"):
        if tree := parse(source):
            return source, tree
    return prompt, None


def _without(source: str, steps: Iterable[ast.stmt]) -> str:
    """A source without the lines of some statements, those of their decorators among them."""
    gone = set[int]()
    for step in steps:
        first = min(node.lineno for node in (step, *getattr(step, "decorator_list", [])))
        gone.update(range(first, (step.end_lineno or step.lineno) + 1))
    lines = enumerate(source.split("\n"), start=1)
    return "\n".join(line for number, line in lines if number not in gone).strip("\n")


def _holds(tree: ast.Module | None, kinds: tuple[type, ...]) -> bool:
    return tree is not None and any(isinstance(step, kinds) for step in tree.body)


def _function(tree: ast.Module | None, name: str) -> ast.FunctionDef | None:
    """The function that `name` means at the end of a program, None where it is none."""
    found = None
    for step in tree.body if tree else []:
        if isinstance(step, ast.FunctionDef) and step.name == name:
            found = step
        elif name in _top_level_names(step) and not _keeps(step, name):
            found = None
    return found


def _top_level_names(step: ast.stmt) -> Iterable[str]:
    return [step.name] if isinstance(step, SCOPES) else _bound(step)


def _keeps(step: ast.stmt, name: str) -> bool:
    """Whether it leaves a function what it is: it wraps it, `f = cache(f)`, or does not run."""
    match step:
        case ast.Assign([ast.Name()], ast.Call(args=given)):
            return any(isinstance(g, ast.Name) and g.id == name for g in given)
        case ast.If(ast.Compare(ast.Name("__name__"))):
            return True
    return False


def _bound(tree: ast.AST) -> Iterator[str]:
    """The names to which the nodes of a tree give a meaning."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.ClassDef(name=name):
                yield name
            case ast.arg(arg=name):
                yield name
            case ast.alias(name=name, asname=asname):
                yield (asname or name).partition(".")[0]
