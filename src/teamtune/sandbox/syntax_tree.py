"""Parsing that threads may share, of texts that are not too long to be parsed in the caller."""

import ast
import threading
from typing import Any

LONGEST_PROGRAM, LONGEST_TEST = 1 << 16, 1 << 18
"""Characters. Time and memory of a parse grow with them, the memory by a hundred bytes each."""
_ONE_AT_A_TIME = threading.Lock()
_TRIES = 5


def parse_tree(source: str, mode: str = "exec", longest: int = LONGEST_PROGRAM) -> Any:
    """`ast.parse`, whose recursion counter all threads of a CPython 3.11 share (gh-106905).

    A byte-order mark is left out. Raises what `ast.parse` raises for what is no program
    (SyntaxError, ValueError, RecursionError, MemoryError), and ValueError for more than `longest`
    characters.
    """
    if len(source) > longest:
        raise ValueError(f"a source of {len(source)} characters, allowed: {longest} or fewer")
    for _ in range(_TRIES):
        with _ONE_AT_A_TIME:
            try:
                return ast.parse(source.removeprefix("\ufeff"), mode=mode)
            except SystemError:  # a parse inside a finalizer got in between: not our source's fault
                continue
    raise RecursionError("the parser's recursion counter does not recover")
