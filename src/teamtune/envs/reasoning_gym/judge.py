"""The process that makes and scores problems of reasoning-gym. A script: it imports nothing of
ours, and reads requests as lines of JSON, `[seconds, what, dataset, options, ...]`.

Some generators depend on the order of sets of strings or on the global random numbers: this process
has one order, and starts both anew for every problem. Some verifiers call `eval` on answers: here
these read literals, and formulas are read by names that do nothing but mathematics.
"""

import ast
import dataclasses
import json
import os
import random
import re
import resource
import signal
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache

import numpy
import reasoning_gym
import sympy
from reasoning_gym.algorithmic import (
    binary_matrix,
    number_sorting,
    spiral_matrix,
    string_insertion,
)
from reasoning_gym.factory import DATASETS
from reasoning_gym.games import countdown, n_queens, puzzle24
from sympy.parsing.sympy_parser import parse_expr

PATIENCE = 20
"""Seconds by the clock for one of processor time."""
LONGEST = 300
"""Characters of an error."""
NAMES = (
    *("Abs", "E", "Float", "Function", "I", "Integer", "Rational", "Symbol", "acos", "acosh"),
    *("asin", "asinh", "atan", "atanh", "cos", "cosh", "cot", "csc", "exp", "factorial", "ln"),
    *("log", "oo", "pi", "sec", "sign", "sin", "sinh", "sqrt", "tan", "tanh"),
)
"""What a formula may name of sympy, beside symbols. Not `Integral`: its derivative is the
integrand, so that writing the problem down would solve it. (Some gold answers of
`intermediate_integration` do that; a true integral is right there, too.)"""
FORMULA = re.compile(r"(?!.*(\.\s*[^\W\d]|_))[\w\s+\-*/^().,]*", re.DOTALL | re.ASCII)
"""No text in quotes, which sympy would evaluate, no attribute, no name with an underscore."""


def main() -> None:
    megabytes = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    disarm()
    answers = os.fdopen(os.dup(1), "w")
    print("ready", file=answers, flush=True)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for printed in (1, 2):  # by the library; it is no answer, and nobody reads its warnings
        os.dup2(nowhere, printed)
    for line in sys.stdin:
        seconds, what, *arguments = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_REAL, PATIENCE * seconds)
        try:
            found = make(*arguments) if what == "make" else score(*arguments)
        except Exception as error:  # noqa: BLE001 the library's code may raise anything
            found = {"error": f"{type(error).__name__}: {error}"[:LONGEST]}
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        print(json.dumps(found), file=answers, flush=True)


def disarm() -> None:
    """Keeps answers from running as programs."""
    allowed = {name: getattr(sympy, name) for name in NAMES} | {"__builtins__": {}}

    def read(text: str, local_dict: dict | None = None) -> object:
        if not FORMULA.fullmatch(text):
            raise ValueError("no formula")
        return parse_expr(text, local_dict, global_dict=dict(allowed))

    for module in (sympy, countdown, puzzle24):
        module.parse_expr = read
    for module in (binary_matrix, n_queens, number_sorting, spiral_matrix, string_insertion):
        module.eval = ast.literal_eval


def make(name: str, options: dict, seed: int) -> dict:
    """The problem of a seed: its texts, and its metadata as a literal, for JSON has no tuples."""
    refused = refusal(name, options)
    if refused:
        return {"refused": refused}
    random.seed(seed)
    numpy.random.seed(seed)
    entry = reasoning_gym.create_dataset(name, seed=seed, size=1, **options)[0]
    metadata = repr(plain(entry["metadata"]))
    ast.literal_eval(metadata)
    return {"question": entry["question"], "answer": entry["answer"], "metadata": metadata}


def score(name: str, options: dict, problem: dict, answer: str) -> dict:
    """What an answer to a problem of `make` is worth."""
    entry = problem | {"metadata": ast.literal_eval(problem["metadata"])}
    worth = float(scorer(name, json.dumps(options)).score_answer(answer, entry))
    if not 0.0 <= worth <= 1.0:
        return {"error": f"a score of {worth}"}
    return {"score": worth}


@cache
def scorer(name: str, options: str) -> reasoning_gym.dataset.ProceduralDataset:
    return reasoning_gym.create_dataset(name, seed=0, size=1, **json.loads(options))


def refusal(name: str, options: dict) -> str:
    """Why there are no such problems; empty where there may be."""
    if name not in DATASETS:
        return f"dataset: got {name!r}, {nearest(name, DATASETS)}"
    known = {field.name for field in dataclasses.fields(DATASETS[name][1])} - {"seed", "size"}
    wrong = next((option for option in options if option not in known), None)
    return f"options: got {wrong!r}, {nearest(wrong, known)}" if wrong is not None else ""


def nearest(word: str, known: Iterable[str]) -> str:
    """What `word` may mean of what is known; all of it where it is like nothing."""
    names = sorted(known)
    return f"allowed: {', '.join(get_close_matches(word, names, 5) or names)}"


def plain(value: object) -> object:
    """The same of built-in types alone, where numpy's are subclasses of them."""
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    for many in (list, tuple, set):
        if isinstance(value, many):
            return many(plain(item) for item in value)
    return value


if __name__ == "__main__":
    main()
