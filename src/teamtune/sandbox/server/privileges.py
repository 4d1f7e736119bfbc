"""Giving up root: a private, read-only mount table where one can be had, then an ordinary user.

A server of root's that stayed root could not be held by the kernel's limit on threads. Where the
interpreter lies under a folder closed to others (/root), an empty folder is mounted over that one
for this process alone, and only the interpreter appears in it again.
"""

import ctypes
import os
from pathlib import Path

from teamtune.sandbox.server.seccomp import libc

_NEW_MOUNTS, _NEW_UTS, _NEW_IPC, _NEW_NET = 0x00020000, 0x04000000, 0x08000000, 0x40000000
_NO_SUID, _NO_DEV, _READ_ONLY, _BIND, _RECURSIVE, _PRIVATE = 2, 4, 1, 4096, 16384, 1 << 18
_MOUNT_SETATTR, _AT_RECURSIVE = 442, 0x8000
_CAPABILITY_VERSION = 0x20080522
NOBODY = 65534


def new_namespaces() -> bool:
    """Moves this process to namespaces without network; False where that is not allowed."""
    if libc.unshare(_NEW_MOUNTS | _NEW_UTS | _NEW_IPC | _NEW_NET) != 0:
        return False
    try:
        _mount("none", "/", None, _RECURSIVE | _PRIVATE)
    except OSError:
        return False
    return True


def make_read_only() -> bool:
    """Makes all mounts of this process read-only; False where the kernel (before 5.12) cannot."""
    attributes = (ctypes.c_uint64 * 4)(_READ_ONLY)
    arguments = (ctypes.c_int(-1), b"/", ctypes.c_uint(_AT_RECURSIVE), ctypes.byref(attributes))
    return libc.syscall(_MOUNT_SETATTR, *arguments, ctypes.c_size_t(32)) == 0


def mount_scratch(path: str, size: int, files: int) -> None:
    """A file system of its own, so that the kernel counts removed files too. Raises OSError.

    Args:
        path: The folder that it takes the place of.
        size: Bytes that it can hold.
        files: How many files.
    """
    options = f"mode=700,size={size},nr_inodes={files + 1}"  # the folder itself is one
    _mount("tmpfs", path, "tmpfs", _NO_SUID | _NO_DEV, options)


def closed_ancestor(path: str) -> Path | None:
    """The outermost folder on the way to `path` that other users may not enter."""
    for folder in reversed(Path(path).resolve().parents):
        if not folder.stat().st_mode & 0o001:
            return folder
    return None


def open_way(paths: list[str]) -> None:
    """Makes `paths` reachable for everyone, in this process's mounts only. Raises OSError."""
    closed: dict[Path, list[str]] = {}
    for path in paths:
        if (ancestor := closed_ancestor(path)) is not None:
            closed.setdefault(ancestor, []).append(str(Path(path).resolve()))
    for ancestor, hidden in closed.items():
        handles = [(path, os.open(path, os.O_PATH)) for path in hidden]
        _mount("tmpfs", str(ancestor), "tmpfs", _NO_SUID | _NO_DEV, "mode=755,size=1m")
        for path, handle in handles:
            os.makedirs(path, exist_ok=True)
            _mount(f"/proc/self/fd/{handle}", path, None, _BIND)
            os.close(handle)
        flags = _NO_SUID | _NO_DEV | _READ_ONLY | 32  # 32: remount
        _mount("tmpfs", str(ancestor), "tmpfs", flags, "mode=755,size=1m")


def become(uid: int, scratch: str) -> int:
    """Drops root for `uid`, or for nobody where that one is not mapped; returns the new user.

    The scratch folder changes owner. Raises OSError where neither is possible.
    """
    for user in (uid, NOBODY):
        try:
            os.chown(scratch, user, user)
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
        except OSError:
            if user == NOBODY:
                raise
            continue
        return user
    raise AssertionError("unreachable")


def drop_capabilities() -> None:
    """Root without root's rights: what is left where no other user can be had. Raises OSError."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    if libc.capset(ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)())) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def tasks_of(user: int) -> int:
    """Threads that `user` has at the moment, as far as /proc tells."""
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if process.stat().st_uid == user:
                count += (process / "task").stat().st_nlink - 2
        except OSError:
            continue
    return count


def _mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    arguments = [None if a is None else a.encode() for a in (source, target, kind)]
    data = options.encode() if options else None
    if libc.mount(*arguments, ctypes.c_ulong(flags), data) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"mount {target}: {os.strerror(code)}")
