"""A seccomp filter: an allow-list of kernel calls, checked by the kernel for each call.

It holds for the process and its threads, cannot be taken off, and works for root and ordinary
users alike. With it a program has no new processes, no network and no way to touch other ones.
"""

import ctypes
import errno
import os
import struct

from teamtune.sandbox.server.syscalls import ALLOWED, AUDIT_ARCH, CHECKED, UNKNOWN

_LOAD, _EQUAL, _AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_CLONE_THREAD = 0x00010000
_CLONE_NAMESPACES = 0x7E020080
_TERMINAL_QUERIES = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX: what Python asks of its files."""
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2

libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def _op(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("HBBI", code, yes, no, value)


def _answer(error: int) -> bytes:
    return _op(_RETURN, _ERRNO | error)


def _only(number: int, argument: int, values: tuple[int, ...], mask: int = 0xFFFFFFFF) -> bytes:
    """Allows call `number` where `argument & mask` is one of `values`, else EPERM."""
    body = [_op(_LOAD, 16 + 8 * argument), _op(_AND, mask)]
    for value in values:
        body += [_op(_EQUAL, value, 0, 1), _op(_RETURN, _ALLOW)]
    body.append(_answer(errno.EPERM))
    return _op(_EQUAL, number, 0, len(body)) + b"".join(body)


def supported() -> bool:
    """Whether the filter knows this machine's call numbers."""
    return os.uname().machine in AUDIT_ARCH


def build(pid: int) -> bytes:
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
    for numbers in ALLOWED.values():
        if (number := numbers[column]) is not None:
            parts += [_op(_EQUAL, number, 0, 1), _op(_RETURN, _ALLOW)]
    for numbers in UNKNOWN.values():
        parts += [_op(_EQUAL, numbers[column] or 0, 0, 1), _answer(errno.ENOSYS)]
    checked = {name: numbers[column] or 0 for name, numbers in CHECKED.items()}
    thread_only = _CLONE_THREAD | _CLONE_NAMESPACES
    parts += [
        _only(checked["clone"], 0, (_CLONE_THREAD,), thread_only),
        _only(checked["kill"], 0, (pid,)),
        _only(checked["tgkill"], 0, (pid,)),
        _only(checked["prlimit64"], 0, (0,)),
        _only(checked["ioctl"], 1, _TERMINAL_QUERIES),
        _answer(errno.EPERM),
    ]
    return b"".join(parts)


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
