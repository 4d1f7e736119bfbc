"""One program: fork it behind its wall, watch the clock, kill, and say how it ended."""

import json
import os
import select
import shutil
import signal
import socket
import time
from typing import Any

from teamtune.sandbox.server.confine import Walls, confine
from teamtune.sandbox.server.limits import MAX_FILES, Limits
from teamtune.sandbox.server.program import run_program

STOP = b"stop"
"""What the trusted side sends to end the running program early."""
_SLICE = 0.05
"""Seconds between two looks at what a program has written."""
REQUEST, STDIN, STDOUT, CHANNEL = range(4)
"""The order of a program's open files in a job."""


class CallerGone(Exception):
    """The trusted side has closed its end."""


def start(walls: Walls, limits: Limits, files: list[int]) -> int:
    """Forks the child that runs one program; returns its process id."""
    server = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            _child(walls, limits, files, server)
        finally:
            os._exit(1)
    return pid


def _child(walls: Walls, limits: Limits, files: list[int], server: int) -> None:
    """Never returns. Its open files: 0 the input, 1 and 2 the output, 3 the private channel."""
    with os.fdopen(os.dup(files[REQUEST]), "rb") as handle:
        request = json.loads(handle.read())
    moved = [os.dup(files[index]) for index in (STDIN, STDOUT, CHANNEL)]
    null = os.open(os.devnull, os.O_WRONLY)
    for target, source in enumerate((moved[0], moved[1], null, moved[2])):
        os.dup2(source, target)
    os.closerange(4, 1024)
    confine(walls, limits, server)
    run_program(request, 3)
    os._exit(0)


def watch(pid: int, control: socket.socket, limits: Limits, scratch: str) -> dict[str, Any]:
    """Waits for the end of `pid`, at most `limits.timeout` seconds, and leaves nothing of it.

    Returns `ended` (exit, signal, timeout, disk, stopped), `code` (exit status or signal) and
    `seconds`. Raises CallerGone, after killing.
    """
    began = time.monotonic()
    handle = os.pidfd_open(pid)
    poller = select.poll()
    poller.register(handle, select.POLLIN)
    poller.register(control, select.POLLIN)
    why, gone = "", False
    try:
        while not why:
            left = limits.timeout - (time.monotonic() - began)
            ready = dict(poller.poll(max(0.0, min(left, _SLICE)) * 1000))
            if handle in ready:
                why = "exit"
            elif control.fileno() in ready:
                gone = control.recv(4096) != STOP
                why = "stopped"
            elif left <= 0:
                why = "timeout"
            elif _too_much_on(scratch, limits.disk):
                why = "disk"
    finally:
        os.close(handle)
        _kill(pid)
        _, status, usage = os.wait4(pid, 0)
        clear(scratch)
    if gone:
        raise CallerGone
    code = os.waitstatus_to_exitcode(status)
    if why == "exit" and code < 0:
        late = code == -signal.SIGKILL and usage.ru_utime + usage.ru_stime >= limits.cpu - 0.5
        why = "timeout" if late or code == -signal.SIGXCPU else "signal"
    return {"ended": why, "code": abs(code), "seconds": time.monotonic() - began}


def _kill(pid: int) -> None:
    """Ends the child and, where no filter keeps it from having any, its process group."""
    for send in (os.killpg, os.kill):
        try:
            send(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def _too_much_on(scratch: str, limit: int) -> bool:
    used = 0
    for count, entry in enumerate(os.scandir(scratch)):
        try:
            used += entry.stat(follow_symlinks=False).st_blocks * 512
        except FileNotFoundError:
            continue
        if used > limit or count >= MAX_FILES:
            return True
    return False


def clear(scratch: str) -> None:
    """Empties the scratch folder; programs can make files in it, but no folders."""
    for entry in list(os.scandir(scratch)):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            os.unlink(entry.path)
