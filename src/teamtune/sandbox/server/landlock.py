"""Landlock: the kernel lets a process and its children open only the files it listed before.

One rule set for the whole server: the standard library and its shared libraries to read, the
scratch folder to read and write. /proc, /home, the caller's files and site-packages are not on it.
"""

import ctypes
import os
import stat
from collections.abc import Iterable

from teamtune.sandbox.server.seccomp import libc

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1
WRITE_FILE, READ_FILE, READ_DIR = 1 << 1, 1 << 2, 1 << 3
REMOVE_DIR, REMOVE_FILE, MAKE_REG = 1 << 4, 1 << 5, 1 << 8
_FILE_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""By version of the interface: every right that it knows, all of which are taken away."""
TRUNCATE = 1 << 14
_TCP, _SCOPES = 0b11, 0b11
"""Bind and connect; abstract sockets and signals to processes outside."""


class _RuleSet(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def version() -> int:
    """The kernel's interface version, 0 where there is no Landlock."""
    return max(0, libc.syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG)))


def _call(number: int, *arguments: object) -> int:
    result: int = libc.syscall(number, *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"landlock call {number}: {os.strerror(code)}")
    return result


def restrict(rules: Iterable[tuple[str, int]]) -> None:
    """Allows each (path, rights) and nothing else; paths that do not exist are left out.

    Needs `forbid_new_privileges` first. Raises OSError where the kernel refuses.
    """
    found = version()
    known = _FILE_RIGHTS[max(v for v in _FILE_RIGHTS if v <= max(found, 1))]
    attributes = _RuleSet(known, _TCP if found >= 4 else 0, _SCOPES if found >= 6 else 0)
    size = 8 if found < 4 else 16 if found < 6 else 24
    rule_set = _call(_CREATE, ctypes.byref(attributes), ctypes.c_size_t(size), ctypes.c_uint32(0))
    try:
        for path, rights in rules:
            try:
                handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue
            if not stat.S_ISDIR(os.fstat(handle).st_mode):
                rights &= READ_FILE | WRITE_FILE | TRUNCATE
            rule = _PathRule(rights & known, handle)
            arguments = (ctypes.c_int(_PATH_BENEATH), ctypes.byref(rule), ctypes.c_uint32(0))
            _call(_ADD, ctypes.c_int(rule_set), *arguments)
            os.close(handle)
        _call(_RESTRICT, ctypes.c_int(rule_set), ctypes.c_uint32(0))
    finally:
        os.close(rule_set)
