"""The folder of one server, and what is left of servers whose caller was killed."""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_NAME, _UNLOCKED = "teamtune-programs-", "teamtune-unlocked-"


class Folder:
    """`scratch`, which programs may write to, and until `bare` a bait beside it that they may not.

    Locked while it is in use: a lock ends with its process, however that ends.
    """

    def __init__(self) -> None:
        fresh = tempfile.mkdtemp(prefix=_UNLOCKED)
        self._handle = os.open(fresh, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._handle, fcntl.LOCK_EX)
        self.path = fresh.replace(_UNLOCKED, _NAME)
        os.rename(fresh, self.path)  # from here on `sweep` sees it, locked
        if os.geteuid() == 0:
            os.chmod(self.path, 0o711)  # the server becomes another user
        os.mkdir(os.path.join(self.path, "scratch"), 0o700)
        self._outside = os.path.join(self.path, "outside")
        bait = os.path.join(self._outside, "bait")
        os.mkdir(self._outside)
        os.close(os.open(bait, os.O_CREAT | os.O_WRONLY))
        for path, mode in ((self._outside, 0o777), (bait, 0o666)):
            os.chmod(path, mode)

    def bare(self) -> None:
        """Takes the bait away."""
        shutil.rmtree(self._outside, ignore_errors=True)

    def close(self) -> None:
        """Removes the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._handle)


def sweep() -> None:
    """Removes this user's folders that nobody uses any more."""
    for path in Path(tempfile.gettempdir()).glob(f"{_NAME}*"):
        try:
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            if os.fstat(handle).st_uid == os.geteuid():
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:
            continue
        finally:
            os.close(handle)
