"""What one program may use. Sizes in bytes, times in seconds."""

import math
import resource
from typing import NamedTuple

MAX_FILES = 1000
"""In the scratch folder at a time."""


class Limits(NamedTuple):
    """The limits of one program, as the trusted side sends them with it."""

    timeout: float
    """Wall-clock seconds; the processor's own limit is the next full second but one."""
    memory: int
    """Address space, that of the interpreter (about 40 MB) included."""
    file_size: int
    """Largest single file."""
    disk: int
    """All files of the scratch folder together."""

    @property
    def cpu(self) -> int:
        return math.ceil(self.timeout) + 1


def apply_limits(limits: Limits, max_tasks: int) -> None:
    """Sets the calling process's limits; without privileges it cannot raise them again.

    Args:
        max_tasks: Threads and processes of this user altogether; the kernel ignores it for root.
    """
    wanted = {
        resource.RLIMIT_CPU: limits.cpu,
        resource.RLIMIT_AS: limits.memory,
        resource.RLIMIT_FSIZE: limits.file_size,
        resource.RLIMIT_NOFILE: 64,
        resource.RLIMIT_NPROC: max_tasks,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    for kind, value in wanted.items():
        hard = resource.getrlimit(kind)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(kind, (value, value))
