"""Which protections hold: a child behind the wall tries to break each of them.

What `Sandbox.protection` names was tried on this machine, not assumed from its configuration.
"""

import json
import mmap
import os
import resource
import socket
from collections.abc import Callable

from teamtune.sandbox.server import seccomp
from teamtune.sandbox.server.confine import Walls, confine
from teamtune.sandbox.server.limits import Limits

_OUTSIDE = "/etc/passwd"
WRITING = ("creating", "overwriting", "truncating", "removing")
"""Protections of all files but those in the scratch folder."""


def protections(walls: Walls, limits: Limits) -> dict[str, str]:
    """Name and means of each protection that held, for a child with `limits`."""
    reader, writer = os.pipe()
    server = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            confine(walls, limits, server)
            os.write(writer, json.dumps(_attempts(walls, limits)).encode())
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
        "file_size": "rlimit",
        "disk": walls.active.get("disk", ""),
    } | dict.fromkeys(("reading", *WRITING), walls.active.get("files", "user"))
    found = {name: how for name, how in means.items() if held.get(name)}
    extra = {name: walls.active[name] for name in ("user", "namespaces") if name in walls.active}
    return found | {"output": "pipe", "environment": "empty"} | extra


def _attempts(walls: Walls, limits: Limits) -> dict[str, bool]:
    """Per protection whether the attempts to break it failed.

    The bait is a file that its permissions alone would let everybody change.
    """
    bait = os.path.join(walls.folder, "outside", "bait")
    return {
        "time": hasattr(os, "pidfd_open"),
        "cpu": resource.getrlimit(resource.RLIMIT_CPU)[1] <= limits.cpu,
        "memory": _fails(lambda: mmap.mmap(-1, 2 * limits.memory)),
        "processes": _fails(_fork),
        "network": _fails(_dial) and _fails(_post, PermissionError),
        "reading": _fails(lambda: open(_OUTSIDE).close()),
        "creating": _fails(lambda: open(f"{bait}-2", "w").close()),
        "overwriting": _fails(lambda: open(bait, "r+").close()),
        "truncating": _fails(lambda: os.truncate(bait, 0))
        and _fails(lambda: os.close(os.open(bait, os.O_RDONLY | os.O_TRUNC))),
        "removing": _fails(lambda: os.rename(bait, f"{bait}-3"))
        and _fails(lambda: os.unlink(bait)),
        "file_size": resource.getrlimit(resource.RLIMIT_FSIZE)[1] <= limits.file_size,
        "disk": _room_of(walls.scratch) <= limits.disk or _fails(_hide),
    }


def _fails(attempt: Callable[[], object], with_error: type[Exception] = Exception) -> bool:
    try:
        attempt()
    except (OSError, MemoryError, ValueError) as error:
        return isinstance(error, with_error)
    return False


def _room_of(folder: str) -> int:
    """Bytes that the file system of `folder` holds."""
    found = os.statvfs(folder)
    return found.f_blocks * found.f_frsize


def _hide() -> None:
    """A file that takes room where no count finds it."""
    with open("hidden", "w"):
        os.unlink("hidden")


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)


def _dial() -> None:
    """A datagram to an address that leads nowhere: it needs a route, and sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as dialled:
        dialled.connect(("192.0.2.1", 9))


def _post() -> None:
    """A datagram to a socket in the file system; that there is none is noticed behind the wall."""
    ours, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, other:
        ours.sendto(b"", "nowhere")
