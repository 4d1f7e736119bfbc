"""A SQLite file that MLflow keeps runs in: made by one process, and looked at before it is used.

MLflow alone waits 20 s for a lock and 100 s for a file that is no database, writes on into a
file that was deleted, lets processes race to create the tables, and cannot spell every folder.
"""

import fcntl
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

PREFIX = "sqlite:///"
CREATION = 60.0
"""Seconds that a process may take to create the tables while others wait."""


class Database:
    """The file at `path`, which need not exist."""

    def __init__(self, path: Path):
        self.path = path.absolute()
        self._link: tempfile.TemporaryDirectory[str] | None = None

    def check(self) -> None:
        """Raises sqlite3.Error for a file that is gone, no database, or locked by another."""
        address = f"file:{quote(str(self.path))}?mode=rw"
        with closing(sqlite3.connect(address, timeout=2, uri=True)) as connection:
            connection.execute("begin immediate")

    def client(self) -> Any:
        """An MLflow client on the file; creates what is missing. Raises what MLflow raises."""
        from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
        from mlflow.tracking import MlflowClient

        self.path.parent.mkdir(parents=True, exist_ok=True)
        with _alone(self.path.with_name(self.path.name + ".lock")):
            if self.path.exists():
                self.check()
            SqlAlchemyStore(self.address, "mlruns")  # the client's own is made once per address
            return MlflowClient(self.address)

    @property
    def address(self) -> str:
        """As MLflow takes it. `%` and `?` mean something there: a link leads around them."""
        if not {"%", "?"} & {*str(self.path)}:
            return PREFIX + str(self.path)
        if self._link is None:
            self._link = tempfile.TemporaryDirectory(prefix="teamtune-mlflow-")
            (Path(self._link.name) / "folder").symlink_to(self.path.parent)
        return f"{PREFIX}{self._link.name}/folder/{self.path.name}"


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    with path.open("a") as file:
        end = time.monotonic() + CREATION
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise TimeoutError(f"{path}: held by another process") from None
                time.sleep(0.1)
        yield
