"""Parsing that threads may share."""

import ast
import threading
from typing import Any

_ONE_AT_A_TIME = threading.Lock()
_TRIES = 5


def parse_tree(source: str, mode: str = "exec") -> Any:
    """`ast.parse`, whose recursion counter all threads of a CPython 3.11 share (gh-106905).

    Raises what `ast.parse` raises for what is no program: SyntaxError, ValueError, RecursionError,
    MemoryError.
    """
    for _ in range(_TRIES):
        with _ONE_AT_A_TIME:
            try:
                return ast.parse(source, mode=mode)
            except SystemError:  # a parse inside a finalizer got in between: not our source's fault
                continue
    raise RecursionError("the parser's recursion counter does not recover")
