"""A seccomp filter: an allow-list of kernel calls, checked by the kernel for each call.

It holds for the process and its threads, cannot be taken off, and works for root and ordinary
users alike. With it a program has no new processes, no network and no way to touch other ones.
"""

import ctypes
import errno
import os
import struct
from enum import Enum
from typing import NamedTuple

from teamtune.sandbox.server.syscalls import ALLOWED, AUDIT_ARCH, CHECKED, REMOVING, UNKNOWN

_LOAD, _EQUAL, _AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_CLONE_THREAD = 0x00010000
_CLONE_NAMESPACES = 0x7E020080
_TERMINAL_QUERIES = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX: what Python asks of its files."""
_FILE_COMMANDS = (0, 1, 2, 3, 4, 5, 6, 7, 1030)
"""F_DUPFD, descriptor and status flags, F_GETLK to F_SETLKW, F_DUPFD_CLOEXEC. The others can make
the kernel signal another process (F_SETOWN, F_SETLEASE, F_NOTIFY) or take memory for pipes."""
_ACCESS, _CREATE, _TRUNCATE, _UNNAMED = 0o3, 0o100, 0o1000, 0o20000000
"""Flags of open: how, O_CREAT, O_TRUNC and O_TMPFILE's own bit."""
_OPENED = (0, 1, 2, 1 | _TRUNCATE, 2 | _TRUNCATE)
"""Not truncating what is opened for reading alone: Landlock sees that from version 3 on only."""
_AF_UNIX = 1
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2

libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def _op(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("HBBI", code, yes, no, value)


def _answer(error: int) -> bytes:
    return _op(_RETURN, _ERRNO | error)


class _Test(NamedTuple):
    """That one argument of a call, or its upper half, has one of some values."""

    argument: int
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF
    upper: bool = False

    def instructions(self) -> list[bytes]:
        count = len(self.values)
        equal = [_op(_EQUAL, value, count - i) for i, value in enumerate(self.values)]
        loaded = _op(_LOAD, 16 + 8 * self.argument + 4 * self.upper)
        return [loaded, _op(_AND, self.mask), *equal, _answer(errno.EPERM)]


def _only(number: int, *tests: _Test) -> bytes:
    """Allows call `number` where all `tests` hold, else EPERM."""
    body = [part for test in tests for part in test.instructions()] + [_op(_RETURN, _ALLOW)]
    return _op(_EQUAL, number, 0, len(body)) + b"".join(body)


def supported() -> bool:
    """Whether the filter knows this machine's call numbers."""
    return os.uname().machine in AUDIT_ARCH


class Files(Enum):
    """What programs may do with files, as far as the filter can tell."""

    ALL = "all"
    KEPT = "kept"
    """Write them, but neither remove nor rename them, so that what they hold can be counted."""
    READ = "read"


def build(pid: int, files: Files) -> bytes:
    """The filter's instructions for the process `pid`, which may signal only itself."""
    arch, column = AUDIT_ARCH[os.uname().machine]
    parts = [
        _op(_LOAD, 4),
        _op(_EQUAL, arch, 1, 0),
        _op(_RETURN, _KILL),
        _op(_LOAD, 0),
        _op(_AT_LEAST, 0x40000000, 0, 1),  # x86-64's x32 calls have numbers of their own
        _answer(errno.EPERM),
    ]
    allowed = ALLOWED | (REMOVING if files is Files.ALL else {})
    for numbers in allowed.values():
        if (number := numbers[column]) is not None:
            parts += [_op(_EQUAL, number, 0, 1), _op(_RETURN, _ALLOW)]
    for numbers in UNKNOWN.values():
        parts += [_op(_EQUAL, numbers[column] or 0, 0, 1), _answer(errno.ENOSYS)]
    for name, tests in _conditions(pid, files).items():
        if (number := CHECKED[name][column]) is not None:
            parts.append(_only(number, *tests))
    return b"".join(parts) + _answer(errno.EPERM)


def _conditions(pid: int, files: Files) -> dict[str, tuple[_Test, ...]]:
    """What must hold of the arguments of each call of CHECKED."""

    def opened(flags: int) -> tuple[_Test, ...]:
        if files is Files.READ:
            return (_Test(flags, (0,), _ACCESS | _CREATE | _TRUNCATE | _UNNAMED),)
        return (_Test(flags, _OPENED, _ACCESS | _TRUNCATE), _Test(flags, (0,), _UNNAMED))

    itself = (_Test(0, (pid,)),)
    return {
        "clone": (_Test(0, (_CLONE_THREAD,), _CLONE_THREAD | _CLONE_NAMESPACES),),
        "kill": itself,
        "tgkill": itself,
        "prlimit64": (_Test(0, (0,)),),
        "ioctl": (_Test(1, _TERMINAL_QUERIES),),
        "fcntl": (_Test(1, _FILE_COMMANDS),),
        "socketpair": (_Test(0, (_AF_UNIX,)),),
        "sendto": (_Test(4, (0,)), _Test(4, (0,), upper=True)),  # to nobody but the other end
        "open": opened(1),
        "openat": opened(2),
    }


def forbid_new_privileges() -> None:
    """No setuid program can raise this process again. Raises OSError."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def prctl(option: int, argument: int, pointer: object = None) -> None:
    """prctl(2) with one or two arguments. Raises OSError."""
    rest = (ctypes.c_ulong(0), ctypes.c_ulong(0))
    if libc.prctl(option, ctypes.c_ulong(argument), pointer, *rest) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl {option}: {os.strerror(code)}")


def install(instructions: bytes) -> None:
    """Puts the filter on the calling process for good. Raises OSError."""
    program = _Program(len(instructions) // 8, instructions)
    prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program))
