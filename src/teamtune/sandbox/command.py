"""How the server is started: plainly, or inside bubblewrap where that works here."""

import os
import shutil
import subprocess
import sys
import sysconfig
from functools import cache
from pathlib import Path

_FLAGS = ("-S", "-P", "-s", "-B", "-X", "utf8")
"""No site-packages, no folder of the script on the path, no user site, no byte code, UTF-8."""
ENVIRONMENT = {"PYTHONHASHSEED": "0"}
"""All the server sees. Sets of strings have one order, so a program's verdict is the same twice."""
_SYSTEM_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")
_INSTALLED = ("site-packages", "dist-packages")


def interpreter() -> str:
    """The Python that runs programs: this one, without its virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def plain_command(settings: str) -> list[str]:
    """Starts the server with `settings` (JSON)."""
    return [interpreter(), *_FLAGS, str(Path(__file__).parent / "server" / "boot.py"), settings]


def boxed_command(bubblewrap: str, settings: str, folder: str, disk: int) -> list[str]:
    """The same in namespaces of its own, which hold nothing but the interpreter and our server.

    Args:
        bubblewrap: Path of `bwrap`.
        settings: For the server.
        folder: Its folder, see `Folder`; the box is read-only but for `scratch` in it.
        disk: Bytes that fit there.
    """
    command = [bubblewrap, "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    command += ["--unshare-cgroup-try", "--die-with-parent", "--new-session"]
    if os.geteuid() == 0:  # the server leaves root by itself, for a user of its own
        for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_CHOWN"):
            command += ["--cap-add", capability]
    else:
        command += ["--unshare-user"]
    needed = [*_needed(), folder]
    parents = {parent for path in needed for parent in Path(path).parents[:-1]}
    for parent in sorted(parents):  # bubblewrap's own would be closed to other users
        command += ["--perms", "0755", "--dir", str(parent)]
    for path in needed:
        command += ["--ro-bind", path, path]
    for hidden in (f"{_standard_library()}/{name}" for name in _INSTALLED):
        if os.path.isdir(hidden):  # it may hold a benchmark with its answers
            command += ["--tmpfs", hidden]
    scratch = os.path.join(folder, "scratch")
    command += ["--size", str(disk), "--tmpfs", scratch, "--dev", "/dev", "--proc", "/proc"]
    command += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", scratch, "--"]
    return command + plain_command(settings)


def _needed() -> list[str]:
    """Folders and files without which neither the interpreter nor the server starts."""
    library = _standard_library()
    around = os.path.dirname(library)  # a Python of its own keeps its shared libraries there
    paths = [interpreter(), str(Path(__file__).parent)]
    paths.append(library if around in _SYSTEM_LIBRARIES else around)
    for root in ("/lib", "/usr/lib"):
        paths.append(os.path.join(root, sysconfig.get_config_var("MULTIARCH") or "none"))
    paths += ["/lib64", "/usr/lib64", "/etc/ld.so.cache", "/usr/share/zoneinfo", "/etc/localtime"]
    return [path for path in dict.fromkeys(paths) if os.path.exists(path)]


def _standard_library() -> str:
    return os.path.dirname(os.path.realpath(os.__file__))


@cache
def find_bubblewrap() -> str | None:
    """The path of a `bwrap` that can make namespaces here, found by trying; None without one."""
    path = shutil.which("bwrap")
    if path is None:
        return None
    trial = [path, "--unshare-pid", "--unshare-net", "--ro-bind", "/", "/", "true"]
    try:
        done = subprocess.run(trial, capture_output=True, timeout=10, env={}, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return path if done.returncode == 0 else None
