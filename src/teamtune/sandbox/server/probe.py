"""Which protections hold: a child behind the wall tries to break each of them.

What `Sandbox.protection` names was tried on this machine, not assumed from its configuration.
"""

import json
import mmap
import os
import resource
import socket

from teamtune.sandbox.server import seccomp
from teamtune.sandbox.server.confine import Walls, confine
from teamtune.sandbox.server.limits import Limits

_OUTSIDE = "/etc/passwd"


def protections(walls: Walls, limits: Limits) -> dict[str, str]:
    """Name and means of each protection that held, for a child with `limits`."""
    reader, writer = os.pipe()
    server = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            confine(walls, limits, server)
            os.write(writer, json.dumps(_attempts(limits)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as handle:
        answer = handle.read()
    os.waitpid(pid, 0)
    held = json.loads(answer) if answer else {}
    kernel = "seccomp" if seccomp.supported() else walls.active.get("namespaces", "namespace")
    means = {
        "time": "clock of the server",
        "cpu": "rlimit",
        "memory": "rlimit",
        "processes": kernel,
        "network": kernel,
        "files": walls.active.get("files", "user"),
        "file_size": "rlimit",
    }
    found = {name: how for name, how in means.items() if held.get(name)}
    extra = {name: walls.active[name] for name in ("user", "namespaces") if name in walls.active}
    return found | {"output": "pipe", "environment": "empty"} | extra


def _attempts(limits: Limits) -> dict[str, bool]:
    """Per protection whether the attempt to break it failed."""
    return {
        "time": hasattr(os, "pidfd_open"),
        "cpu": resource.getrlimit(resource.RLIMIT_CPU)[1] <= limits.cpu,
        "memory": _fails(lambda: mmap.mmap(-1, 2 * limits.memory)),
        "processes": _fails(_fork),
        "network": _fails(_dial),
        "files": _fails(lambda: open(_OUTSIDE).close()),
        "file_size": resource.getrlimit(resource.RLIMIT_FSIZE)[1] <= limits.file_size,
    }


def _fails(attempt: object) -> bool:
    try:
        attempt()  # type: ignore[operator]
    except (OSError, MemoryError, ValueError):
        return True
    return False


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)


def _dial() -> None:
    """A datagram to an address that leads nowhere: it needs a route, and sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as dialled:
        dialled.connect(("192.0.2.1", 9))
