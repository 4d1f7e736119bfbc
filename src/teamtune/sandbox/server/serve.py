"""The server's loop: one job at a time, from a socket that only the trusted side holds."""

import gc
import importlib
import json
import os
import socket
import sys
from typing import Any

from teamtune.sandbox.server.confine import Walls
from teamtune.sandbox.server.limits import Limits
from teamtune.sandbox.server.probe import protections
from teamtune.sandbox.server.supervise import STOP, CallerGone, clear, start, watch

_USUAL = (
    *("abc", "array", "ast", "bisect", "calendar", "cmath", "collections", "copy", "dataclasses"),
    *("datetime", "decimal", "enum", "fractions", "functools", "hashlib", "heapq", "io", "inspect"),
    *("itertools", "json", "math", "operator", "queue", "random", "re", "statistics", "string"),
    *("textwrap", "threading", "time", "traceback", "types", "typing"),
)
"""Modules that generated programs often import; loaded once, they cost a program nothing."""


def serve(settings: dict[str, Any]) -> None:
    """Answers jobs until the trusted side closes the socket, which is file 0.

    A job is one packet: the limits as a JSON list, and four open files (see `supervise`). The
    first packet sent back names the protections; then there is one per job.
    """
    control = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for name in _USUAL:
        importlib.import_module(name)
    walls = Walls(settings)
    found = protections(walls, Limits(*settings["limits"]))
    control.send(json.dumps({"protections": found}).encode())
    for name in [name for name in sys.modules if name.partition(".")[0] == "teamtune"]:
        del sys.modules[name]  # programs find the standard library only
    clear(walls.scratch)
    gc.collect()
    gc.freeze()
    while True:
        packet, files, _, _ = socket.recv_fds(control, 4096, 8)
        if not packet:
            return
        if packet == STOP:  # it came too late: that program had ended by itself
            continue
        limits = Limits(*json.loads(packet))
        try:
            pid = start(walls, limits, list(files))
        finally:
            for handle in files:
                os.close(handle)
        try:
            ending = watch(pid, control, limits, walls.scratch)
        except CallerGone:
            return
        control.send(json.dumps(ending).encode())
