"""The two walls around a program: one around the server, for good; one around each child.

The server gives up root, namespaces and every file it does not need before it forks anything. The
child adds its limits and the filter on kernel calls, which would keep the server from forking.
"""

import os
import signal
import sys
from typing import Any

from teamtune.sandbox.server import landlock, privileges, seccomp
from teamtune.sandbox.server.limits import MAX_FILES, Limits, apply_limits
from teamtune.sandbox.server.seccomp import Files

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_HIDDEN = ("site-packages", "dist-packages", "test", "idlelib", "ensurepip", "__pycache__")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random", "/dev/full")
_SYSTEM_DATA = ("/usr/share/zoneinfo", "/etc/localtime", "/etc/ld.so.cache")
_SPARE_TASKS_OWN_USER, _SPARE_TASKS_SHARED_USER = 256, 4096
_SCRATCH = (
    *(landlock.READ_FILE, landlock.READ_DIR, landlock.WRITE_FILE, landlock.TRUNCATE),
    *(landlock.REMOVE_FILE, landlock.REMOVE_DIR, landlock.MAKE_REG),
)


class Walls:
    """What holds the server in; `active` names each protection and by what means it holds."""

    def __init__(self, settings: dict[str, Any]):
        """Confines the calling process for good.

        Args:
            settings: `folder`, in which `scratch` is what programs may write to; `uid`, a user of
                its own for a server of root's; `bubblewrap`, whether it already runs in one;
                `limits`, the usual ones.
        """
        self.folder: str = settings["folder"]
        self.scratch = os.path.join(self.folder, "scratch")
        self.active: dict[str, str] = {}
        self.libraries = _library_folders()
        if settings["bubblewrap"]:
            self.active |= dict.fromkeys(("namespaces", "files", "disk"), "bubblewrap")
        self._own_mounts = (
            not settings["bubblewrap"] and os.geteuid() == 0 and privileges.new_namespaces()
        )
        if self._own_mounts:
            self.active["namespaces"] = "mount, net, ipc, uts"
        spare = self._user(int(settings["uid"]), Limits(*settings["limits"]).disk)
        self.max_tasks = privileges.tasks_of(os.getuid()) + spare
        seccomp.prctl(_PR_SET_DUMPABLE, 0)  # a child cannot reach into it through /proc
        seccomp.forbid_new_privileges()
        if landlock.version():
            landlock.restrict(self._readable())
            self.active["files"] = "landlock"
        self.files = self._files()

    def _files(self) -> Files:
        """What programs may do with files; nothing where no wall stands around the others'."""
        if "files" not in self.active:
            if seccomp.supported():
                self.active |= {"files": "seccomp", "disk": "no files"}
            return Files.READ
        if "disk" in self.active:
            return Files.ALL
        self.active["disk"] = "counted"
        return Files.KEPT

    def _user(self, uid: int, disk: int) -> int:
        """Leaves root; returns how many threads the program's user may have besides its own."""
        if os.geteuid() != 0:
            self.active["user"] = f"uid {os.getuid()}"
            return _SPARE_TASKS_SHARED_USER
        needed = [os.path.dirname(_standard_library()), self.folder]
        try:
            if self._own_mounts:
                self._mount(needed, disk)
            elif any(map(privileges.closed_ancestor, needed)):
                raise OSError(f"one of {needed} lies where no other user may go")
            user = privileges.become(uid, self.scratch)
        except OSError as error:
            privileges.drop_capabilities()
            self.active["user"] = f"uid 0 without capabilities ({error})"
            return _SPARE_TASKS_SHARED_USER
        self.active["user"] = f"uid {user}"
        return _SPARE_TASKS_OWN_USER

    def _mount(self, needed: list[str], disk: int) -> None:
        """Mounts that only this process sees. Raises OSError."""
        privileges.open_way(needed)
        if privileges.make_read_only():
            self.active["files"] = "read-only mounts"
        privileges.mount_scratch(self.scratch, disk, MAX_FILES)
        self.active["disk"] = "tmpfs"

    def _readable(self) -> list[tuple[str, int]]:
        """(path, rights) of everything that programs and the server may open."""
        library = _standard_library()
        read = landlock.READ_FILE | landlock.READ_DIR
        rules = [(library, landlock.READ_DIR), (self.scratch, sum(_SCRATCH))]
        for name in os.listdir(library):
            if name not in _HIDDEN:
                rules.append((os.path.join(library, name), read))
        for folder in self.libraries:
            rules += [(path, landlock.READ_FILE) for path in _shared_objects(folder)]
        rules += [(path, landlock.READ_FILE | landlock.WRITE_FILE) for path in _DEVICES]
        return rules + [(path, read) for path in _SYSTEM_DATA]


def confine(walls: Walls, limits: Limits, server: int) -> None:
    """The child's wall, for good: dies with its server, limits, no calls but the allowed ones."""
    os.setsid()
    seccomp.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:
        os._exit(1)
    os.chdir(walls.scratch)
    apply_limits(limits, walls.max_tasks)
    if seccomp.supported():
        seccomp.install(seccomp.build(os.getpid(), walls.files))


def _standard_library() -> str:
    return os.path.dirname(os.path.realpath(os.__file__))


def _library_folders() -> list[str]:
    """Where the shared libraries lie that the interpreter has loaded; read before the wall."""
    with open("/proc/self/maps") as maps:
        paths = {line.split()[-1] for line in maps if ".so" in line}
    return sorted(
        {os.path.dirname(path) for path in paths} | {os.path.join(sys.base_prefix, "lib")}
    )


def _shared_objects(folder: str) -> list[str]:
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return [os.path.join(folder, name) for name in names if ".so" in name]
