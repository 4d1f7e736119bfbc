"""Keeps glibc from giving freed memory back to the system after every large tensor.

By default each tensor above a threshold is mapped and unmapped anew, and touching fresh pages takes
a large part of the time of small models on a CPU.
"""

import ctypes
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4
_KEEP = 1 << 30
_PAD = 1 << 26


def keep_freed_memory() -> bool:
    """Tells the C library to reuse memory; False where it is not glibc and nothing was done."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return all(
        mallopt(*option) for option in ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, _KEEP), (_TOP_PAD, _PAD))
    )
