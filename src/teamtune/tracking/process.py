"""Who runs a run: so that one whose process was killed is found and marked."""

import os
import socket
from pathlib import Path


def machine() -> str:
    """This machine: its name, its identity, and the space in which it counts processes."""
    identity, space = Path("/etc/machine-id"), Path("/proc/self/ns/pid")
    name = identity.read_text().strip() if identity.exists() else "0"
    return f"{socket.gethostname()}-{name}-{space.stat().st_ino if space.exists() else 0}"


def process(pid: int | None = None) -> str | None:
    """A process of this machine by number and start, for numbers come again; None when it is gone.

    Only Linux tells; elsewhere there are none.
    """
    pid = os.getpid() if pid is None else pid
    try:
        state, *rest = (
            Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        )
    except OSError:
        return None
    return None if state == "Z" else f"{pid}-{rest[18]}"


def is_dead(name: str) -> bool:
    """Whether a process that was called `name` on this machine is no more."""
    return process(int(name.partition("-")[0])) != name
