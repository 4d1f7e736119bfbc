"""Mutants of the core: does a unit test fail when the code says something else?

A mutant is one small change, such as a comparison turned round, a constant one larger or a keyword
argument left out, in a copy of `src`. The tests of what it is in have to fail or run out of time;
what survives tells of a test that is missing, or of code that does nothing.

    python -m experiments.benchmarks.mutants                                 # 200 from the core
    python -m experiments.benchmarks.mutants algorithms/credit.py --count 0  # all of a file

One process imports torch and the like, and forks for every mutant, so that none waits for that.
"""

import argparse
import ast
import gc
import importlib
import itertools
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CORE = {
    "algorithms": "algorithms callbacks/test_rollout.py rollout/test_malformed.py",
    "callbacks/warm_start.py": "callbacks/test_warm_start.py",
    "callbacks/weight_sync.py": "callbacks/test_weight_sync.py",
    "envs/team_work.py": "envs/writing/test_environment.py",
    "experience/metrics.py": "experience/test_metrics.py experience/test_success_rate.py "
    "experience/test_ledger.py",
    "experience/packing.py": "experience/test_packing.py training/test_loop.py",
    "policies/scorer.py": "policies/test_scorer.py experience/test_packing.py",
    "rollout": "rollout algorithms/test_magrpo.py",
    "seeds.py": "test_seeds.py rollout",
    "training/loop.py": "training algorithms/test_policy_gradient.py",
    "training/silence.py": "training/test_silence.py",
}
"""Files and folders of the package, and those of `tests/unit` that have to notice a change."""

LIBRARIES = ("pytest", "hypothesis", "lightning.pytorch", "transformers", "peft", "jsonargparse")

PAIRS = [
    (ast.Lt, ast.LtE),
    (ast.Gt, ast.GtE),
    (ast.Eq, ast.NotEq),
    (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn),
    (ast.And, ast.Or),
    (ast.BitAnd, ast.BitOr),
    (ast.Add, ast.Sub),
    (ast.Mult, ast.Div),
    ("min", "max"),
    ("minimum", "maximum"),
    ("any", "all"),
]
INSTEAD: dict[Any, Any] = {ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult}
INSTEAD |= {old: new for pair in PAIRS for old, new in (pair, pair[::-1])}
SILENT = (ast.Raise, ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom)
"""What is said to people alone, and what never happens."""


@dataclass(frozen=True)
class Mutant:
    """A file of the package with one change."""

    file: str
    line: int
    change: str
    source: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}  {self.change}"


def mutants(file: str, source: str) -> Iterator[Mutant]:
    """All of a file; a change that reads like what is there already is none."""
    whole = source.encode()
    starts = [0, *itertools.accumulate(map(len, whole.splitlines(keepends=True)))]
    known = set()
    for node in parts(ast.parse(source)):
        for old, new in changes(node):
            before, after = (ast.unparse(ast.fix_missing_locations(x)) for x in (old, new))
            begin = starts[old.lineno - 1] + old.col_offset
            end = starts[old.end_lineno - 1] + old.end_col_offset
            if before != after and (begin, end, after) not in known:
                known.add((begin, end, after))
                text = f"({after})" if isinstance(new, ast.expr) else after
                changed = (whole[:begin] + text.encode() + whole[end:]).decode()
                yield Mutant(file, old.lineno, told(before, after), changed)


def told(old: str, new: str, context: int = 24) -> str:
    """`old -> new`, without most of what both begin and end with."""
    begin = common(old, new)
    end = common(old[begin:][::-1], new[begin:][::-1])
    begin, end = max(0, begin - context), max(0, end - context)
    return " -> ".join(text[begin : len(text) - end][:80] for text in (old, new))


def common(old: str, new: str) -> int:
    """How many characters both begin with."""
    return next((i for i, (a, b) in enumerate(zip(old, new)) if a != b), min(len(old), len(new)))


def parts(node: ast.AST) -> Iterator[ast.AST]:
    """A node and those below it, without what only people and type checkers read."""
    if isinstance(node, SILENT):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns", "decorator_list"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from parts(child)


def changes(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """What of a node is replaced, and by what."""
    for condition in [getattr(node, "test", None), *getattr(node, "ifs", ())]:
        if condition is not None and not turned(condition):
            yield condition, ast.UnaryOp(ast.Not(), condition)
    match node:
        case ast.Compare(left, ops, right):
            for i, op in enumerate(ops):
                yield node, ast.Compare(left, [*ops[:i], INSTEAD[type(op)](), *ops[i + 1 :]], right)
        case ast.BinOp(left, op, right) if type(op) in INSTEAD:
            yield node, ast.BinOp(left, INSTEAD[type(op)](), right)
        case ast.BoolOp(op, values):
            yield node, ast.BoolOp(INSTEAD[type(op)](), values)
        case ast.AugAssign(target, op, value):
            yield node, ast.Pass()
            yield node, ast.AugAssign(target, INSTEAD[type(op)](), value)
        case ast.UnaryOp(ast.USub() | ast.Not(), operand):
            yield node, operand
        case ast.Constant(bool(value)):
            yield node, ast.Constant(not value)
        case ast.Constant(int(value) | float(value)):
            yield from ((node, ast.Constant(other)) for other in (value + 1, type(value)(0)))
        case ast.Call(function, arguments, keywords):
            match function:
                case ast.Name(name) if name in INSTEAD:
                    yield function, ast.Name(INSTEAD[name])
                case ast.Attribute(value, name) if name in INSTEAD:
                    yield function, ast.Attribute(value, INSTEAD[name])
            for own in (k for k in keywords if k.arg != "device"):  # a CPU would not notice
                yield node, ast.Call(function, arguments, [k for k in keywords if k is not own])
        case ast.Expr(ast.Call() | ast.Await()):
            yield node, ast.Pass()
        case ast.FunctionDef(returns=ast.Name(kind)) if kind in ("bool", "float", "int", "Tensor"):
            for value in (n.value for n in ast.walk(node) if isinstance(n, ast.Return)):
                more = ast.BinOp(value, ast.Add(), ast.Constant(1))
                yield value, ast.UnaryOp(ast.Not(), value) if kind == "bool" else more


def turned(condition: ast.AST) -> bool:
    """Whether one of the other changes negates it, or no run could."""
    if isinstance(condition, ast.Name) and condition.id == "TYPE_CHECKING":
        return True
    if isinstance(condition, ast.Compare):
        return not isinstance(condition.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE)
    return isinstance(condition, ast.UnaryOp)


def core(only: Sequence[str] = ()) -> Iterator[tuple[Mutant, str]]:
    """All mutants, each with its tests; of `only` these files and folders, if any."""
    package = ROOT / "src/teamtune"
    for place, tests in CORE.items():
        whole = package / place
        for path in sorted(whole.glob("*.py")) if whole.is_dir() else [whole]:
            file = str(path.relative_to(package))
            if not only or any(Path(file).is_relative_to(o) for o in only):
                yield from ((m, tests) for m in mutants(file, path.read_text()))


def start(mutant: Mutant, tests: str, folder: Path, limit: float) -> int:
    """The id of a process that ends in 0 where all tests pass with the mutant in `src`'s place."""
    if pid := os.fork():
        return pid
    code = 1
    try:
        signal.setitimer(signal.ITIMER_REAL, limit)  # it ends the process
        code = tested(mutant, tests, folder)
    except Exception:  # noqa: BLE001 - a child must not go on as its parent would
        traceback.print_exc()
    finally:
        os._exit(code)


def tested(mutant: Mutant, tests: str, folder: Path) -> int:
    """How pytest ends on a copy of `src` in `folder`; what it prints is in `folder / "log"`."""
    log = os.open(folder / "log", os.O_CREAT | os.O_WRONLY)
    os.dup2(log, 1)
    os.dup2(log, 2)
    source = folder / "src"
    shutil.copytree(ROOT / "src", source)
    (source / "teamtune" / mutant.file).write_text(mutant.source)
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(folder / "hypothesis")
    import pytest

    options = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
    options += [f"--basetemp={folder / 'tmp'}", "-o", f"pythonpath=. {source} tests"]
    return int(pytest.main([*options, *(f"tests/unit/{test}" for test in tests.split())]))


def run(
    cases: Sequence[tuple[Mutant, str]], limits: dict[str, float], jobs: int
) -> Iterator[tuple[Mutant, str, int, float, str]]:
    """Of each mutant its tests, how their process ended (0: it survives), seconds, and output."""
    running: dict[int, tuple[Mutant, str, float, tempfile.TemporaryDirectory[str]]] = {}
    waiting = list(reversed(cases))
    while waiting or running:
        while waiting and len(running) < jobs:
            case, place = waiting.pop(), tempfile.TemporaryDirectory()
            pid = start(*case, Path(place.name), limits.get(case[1], 600))
            running[pid] = (*case, time.monotonic(), place)
        pid, status = os.wait()
        mutant, tests, began, place = running.pop(pid)
        log = Path(place.name, "log")
        output = log.read_text(errors="replace") if log.exists() else ""
        place.cleanup()
        yield mutant, tests, os.waitstatus_to_exitcode(status), time.monotonic() - began, output


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("only", nargs="*", help="files and folders of the core, from src/teamtune")
    parser.add_argument("--count", type=int, default=200, help="how many are drawn; 0 takes all")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    options = parser.parse_args()
    os.chdir(ROOT)
    cases = list(core(options.only))
    if not cases:
        parser.error(f"got {' '.join(options.only)}, allowed: {', '.join(CORE)} or files in them")
    if 0 < options.count < len(cases):
        cases = random.Random(options.seed).sample(cases, options.count)
    for name in LIBRARIES:
        importlib.import_module(name)
    gc.freeze()  # or every child would look through all of that
    limits = {}
    seeds = (ROOT / "src/teamtune/seeds.py").read_text()
    whole = [(Mutant("seeds.py", 0, "as it is", seeds), t) for t in sorted({t for _, t in cases})]
    for _, tests, code, seconds, output in run(whole, {}, options.jobs):
        if code:
            sys.exit(f"{output}\nthe tests fail without a mutant: {tests}")
        limits[tests] = 3 * seconds + 20
    found = Counter()
    for mutant, _, code, seconds, _ in run(cases, limits, options.jobs):
        found[verdict := "killed" if code else "survived"] += 1
        print(f"{verdict:8} {seconds:5.1f} s  {mutant}", flush=True)
    gc.unfreeze()
    print(f"killed {found['killed']} of {len(cases)} mutants: {found['killed'] / len(cases):.1%}")


if __name__ == "__main__":
    main()
