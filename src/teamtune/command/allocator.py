"""Keeps glibc from giving freed memory back to the system after every large tensor.

By default each tensor above a threshold is mapped and unmapped anew, and touching fresh pages takes
a large part of the time of small models on a CPU. With a GPU the host's large tensors are whole
models on their way in and out: they keep being mapped, so that their memory does go back.
"""

import ctypes
import sys
from pathlib import Path

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4
_KEEP = 1 << 30
_PAD = 1 << 26
GPU_DRIVERS = (Path("/dev/nvidiactl"), Path("/dev/kfd"))
"""What shows a GPU before torch is imported, which takes seconds."""


def keep_freed_memory() -> bool:
    """Tells the C library to reuse memory; False where it is not glibc and nothing was done."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    options = [(_TRIM_THRESHOLD, _KEEP), (_TOP_PAD, _PAD)]
    if not any(driver.exists() for driver in GPU_DRIVERS):
        options.append((_MMAP_MAX, 0))
    return all(mallopt(*option) for option in options)
