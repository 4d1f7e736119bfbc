"""Reports in the order they were made, kept so that a server can be told later, or anew."""

import io
import json
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import IO, Any


class Journal:
    """A line of JSON per report: `step`, `time` in seconds since 1970, and `values` by name.

    Attributes:
        path: The file; None as long as reports are in memory.
        sent: Where in the file the reports begin that nobody has taken yet, in bytes.
    """

    def __init__(self) -> None:
        self.path: Path | None = None
        self.sent = 0
        self._file: IO[bytes] = io.BytesIO()

    def begin(self, path: Path) -> None:
        """Continues in a file, with the reports so far that nobody has taken."""
        self._file.seek(self.sent)
        rest = self._file.read()
        self._file.close()
        self._file = path.open("ab+")
        self.path, self.sent = path, self._file.seek(0, io.SEEK_END)
        self._append(rest)

    def add(self, values: Mapping[str, float], step: int) -> None:
        """Adds a report; it is in the file when this returns."""
        values = {name: float(value) for name, value in values.items()}
        report = {"step": step, "time": round(time.time(), 3), "values": values}
        self._append(json.dumps(report).encode() + b"\n")

    def batches(self, size: int) -> Iterator[list[dict[str, Any]]]:
        """Reports that nobody has taken, `size` at a time; asking for more says they are taken."""
        self._file.seek(self.sent)
        while lines := list(islice(self._file, size)):
            yield [json.loads(line) for line in lines]
            self.sent += sum(map(len, lines))

    def _append(self, text: bytes) -> None:
        self._file.seek(0, io.SEEK_END)
        self._file.write(text)
        self._file.flush()
