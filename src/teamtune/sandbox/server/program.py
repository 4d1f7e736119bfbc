"""What happens inside the confined child: the program, then one expression after the other.

Everything here shares a process with untrusted code, which can read and send whatever it likes. So
nothing here decides anything, and no expected value is ever here: it only ships values.
"""

import atexit
import json
import os
import random
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

from teamtune.sandbox.values import encode

MAX_LINE = 1 << 20
"""Longest message, in bytes; a larger value is refused."""
_FILE = "program.py"


def run_program(request: dict[str, Any], channel: int) -> None:
    """Runs `program`, then `probes` where there are any, and reports on `channel`.

    Lines: `loaded`, per probe `value <encoded>` or `raised <kind> <text>`, at last `done`.
    """
    probes = request["probes"]
    _fresh_interpreter()
    name = "__main__" if probes is None else "program"
    module = sys.modules[name] = ModuleType(name)

    def program() -> str:
        try:
            exec(_compiled(request["program"], "exec"), module.__dict__)
        except BaseException:  # what was printed before it is the program's output too
            sys.stdout.flush()
            raise
        return _finished() if probes is None else "loaded"

    loaded = _report(channel, program, exit_is_fine=probes is None)
    if not loaded:
        return
    for probe in probes or ():
        _report(channel, partial(_probe, module, *probe))
    _report(channel, _done)


def _probe(module: ModuleType, prelude: str, source: str) -> str:
    scope = dict(module.__dict__)
    if prelude:
        exec(_compiled(prelude, "exec"), scope)
    return "value " + encode(eval(_compiled(source, "eval"), scope))


def _done() -> str:
    sys.stdout.flush()
    return "done"


def _finished() -> str:
    """The end of an interpreter: waits for threads, then the program's exit functions."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    return "loaded"


def _compiled(source: str, mode: str) -> Any:
    return compile(source.removeprefix("\ufeff"), _FILE, mode, dont_inherit=True)


def _report(channel: int, step: Callable[[], str], exit_is_fine: bool = False) -> bool:
    """Writes what `step` returned or how it failed; False where it failed."""
    try:
        line = step()
        failed = False
    except BaseException as error:  # noqa: BLE001  the boundary to code that may raise anything
        if exit_is_fine and isinstance(error, SystemExit) and not error.code:
            return _report(channel, _finished)
        line = "raised " + _describe(error)
        failed = True
    if len(line) > MAX_LINE:
        line = 'raised error "a value is too large to ship"'
    _write(channel, (line + "\n").encode("ascii", "backslashreplace"))
    return not failed


def _describe(error: BaseException) -> str:
    """`memory` or `error`, and one line of text as JSON."""
    try:
        place, where = error.__traceback__, ""
        while place is not None:
            if place.tb_frame.f_code.co_filename == _FILE:
                where = f"line {place.tb_lineno}: "
            place = place.tb_next
        text = f"{where}{type(error).__name__}: {error}"[:400]
    except BaseException:  # noqa: BLE001  its own __str__ may raise, too
        text = "an exception that cannot be printed"
    kind = "memory" if isinstance(error, MemoryError) else "error"
    return f"{kind} {json.dumps(text)}"


def _write(channel: int, data: bytes) -> None:
    while data:
        data = data[os.write(channel, data) :]


def _fresh_interpreter() -> None:
    """Streams on the program's own files, and the same random numbers for every program."""
    sys.argv = [_FILE]
    sys.modules["__main__"] = ModuleType("__main__")
    streams = {
        "stdin": open(0, encoding="utf-8", closefd=False),  # noqa: SIM115
        "stdout": open(1, "w", encoding="utf-8", closefd=False),  # noqa: SIM115
        "stderr": open(2, "w", encoding="utf-8", errors="replace", closefd=False),  # noqa: SIM115
    }
    for name, stream in streams.items():
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    random.seed(0)
