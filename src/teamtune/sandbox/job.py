"""One program on its way: sealed inputs, two pipes back, and what was read from them."""

import fcntl
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

MAX_CHANNEL = 4 << 20
"""Bytes that one program may send on the private channel."""
_CHUNK = 1 << 16
Probe = tuple[str, str]
"""Statements to run first, and the expression whose value is asked for."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How the child ended, and all that it wrote."""

    why: str
    """exit, signal, timeout, disk, stopped, died (its server did)."""
    code: int
    seconds: float
    stdout: bytes
    channel: bytes
    overflow: str = ""
    """`output` or `channel` where it wrote too much there."""


@dataclass
class Stream:
    """The reading end of a pipe, with a limit on how much of it is kept."""

    handle: int
    name: str
    limit: int
    data: bytearray = field(default_factory=bytearray)
    overflow: bool = False

    def read(self) -> int | None:
        """Takes what is there, without waiting: how much, 0 at the end, None for nothing yet."""
        try:
            chunk = os.read(self.handle, _CHUNK)
        except BlockingIOError:
            return None
        room = self.limit - len(self.data)
        self.data += chunk[:room]
        self.overflow = self.overflow or len(chunk) > room
        return len(chunk)


class Job:
    """The open files of one program. Inputs are sealed memory files: they cannot block or change.

    The child's ends are closed here as soon as they are sent; `close` closes the rest.
    """

    def __init__(self, program: str, probes: Sequence[Probe] | None, stdin: str, max_output: int):
        request = json.dumps({"program": program, "probes": probes}).encode()
        self._handles: list[int] = []
        try:
            self.theirs = [self._sealed(request), self._sealed(stdin.encode("utf-8", "replace"))]
            self.stdout = Stream(self._pipe(), "output", max_output)
            self.channel = Stream(self._pipe(), "channel", MAX_CHANNEL)
        except OSError:
            self.close()
            raise

    def _sealed(self, data: bytes) -> int:
        handle = os.memfd_create("teamtune-sandbox", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self._handles.append(handle)
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        os.lseek(handle, 0, os.SEEK_SET)
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        fcntl.fcntl(handle, fcntl.F_ADD_SEALS, seals)
        return handle

    def _pipe(self) -> int:
        """Our end of a new pipe; the other end joins `theirs`."""
        reader, writer = os.pipe2(os.O_CLOEXEC)
        self._handles += [reader, writer]
        os.set_blocking(reader, False)
        self.theirs.append(writer)
        return reader

    def sent(self) -> None:
        """Closes the child's ends here."""
        for handle in self.theirs:
            os.close(handle)
            self._handles.remove(handle)

    def drain(self) -> None:
        """Reads what is left after the child's end, up to the limits."""
        for stream in (self.stdout, self.channel):
            while not stream.overflow and stream.read():
                pass

    def close(self) -> None:
        for handle in self._handles:
            os.close(handle)
        self._handles.clear()
