"""The trusted side of one server process: start it, give it programs, notice when it dies."""

import itertools
import json
import select
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack
from typing import IO, Any

from teamtune.sandbox.command import ENVIRONMENT, boxed_command, plain_command
from teamtune.sandbox.folder import Folder
from teamtune.sandbox.job import Ending, Job
from teamtune.sandbox.server.limits import Limits

_START_SECONDS = 30.0
_GRACE_SECONDS = 0.7
"""How much longer than the limit the server may take before it is killed itself."""
_FIRST_UID, _UIDS = 61184, 4000
"""A range that no distribution gives to people; only a server of root's uses it."""
_STOP = b"stop"
_numbers = itertools.count()


class WorkerDied(Exception):
    """The server is gone or does not answer; what its program did is not known."""


class WorkerStuck(WorkerDied):
    """The server did not end its program in time."""


class Worker:
    """One server process, which runs one program at a time. Not for two threads at once."""

    def __init__(self, limits: Limits, bubblewrap: str | None):
        """Starts the server.

        Args:
            limits: The usual limits; the server tries its protections with them.
            bubblewrap: Path of `bwrap`, or None for a server without it.

        Raises:
            WorkerDied: It did not start; the message has its last words.
            OSError: There is no room for its folder, or no process to be had.
        """
        self._folder = Folder()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process: subprocess.Popen[bytes] | None = None
        with ExitStack() as undo:
            undo.callback(self.close)
            with theirs, tempfile.TemporaryFile() as words:
                self._process = self._start(limits, bubblewrap, theirs.fileno(), words)
                theirs.close()  # so that its end is noticed here
                hello = self._hello(words)
            undo.pop_all()
        self._folder.bare()
        self.protections: dict[str, str] = hello["protections"]

    def _start(
        self, limits: Limits, bubblewrap: str | None, control: int, words: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        settings = json.dumps(
            {
                "folder": self._folder.path,
                "uid": _FIRST_UID + next(_numbers) % _UIDS,
                "bubblewrap": bubblewrap is not None,
                "limits": limits,
            }
        )
        command = plain_command(settings)
        if bubblewrap:
            command = boxed_command(bubblewrap, settings, self._folder.path, limits.disk)
        return subprocess.Popen(
            command,
            stdin=control,
            stdout=subprocess.DEVNULL,
            stderr=words,
            env=ENVIRONMENT,
            cwd="/",
            close_fds=True,
            start_new_session=True,  # Ctrl-C is for the caller
        )

    def _hello(self, words: IO[bytes]) -> dict[str, Any]:
        """The server's first message, or WorkerDied with its last words."""
        try:
            return self._receive(_START_SECONDS)
        except WorkerDied:
            words.seek(0)
            last = words.read()[-400:].decode("utf-8", "replace").strip().splitlines()
            raise WorkerDied(last[-1] if last else "the server ended at once") from None

    @property
    def pid(self) -> int:
        """Process id of the server (of bubblewrap where it is used)."""
        assert self._process is not None
        return self._process.pid

    def run(self, job: Job, limits: Limits) -> Ending:
        """Runs one program to its end. Raises WorkerDied; the worker is of no use then."""
        try:
            socket.send_fds(self._control, [json.dumps(limits).encode()], job.theirs)
        except OSError as error:
            raise WorkerDied(str(error)) from error
        job.sent()
        answer = self._follow(job, time.monotonic() + limits.timeout + _GRACE_SECONDS)
        job.drain()
        overflow = next((s.name for s in (job.stdout, job.channel) if s.overflow), "")
        stdout, channel = bytes(job.stdout.data), bytes(job.channel.data)
        return Ending(answer["ended"], answer["code"], answer["seconds"], stdout, channel, overflow)

    def _follow(self, job: Job, deadline: float) -> dict[str, Any]:
        """Reads the program's pipes until the server says how it ended.

        Not until the pipes end: a process that the caller forks meanwhile has copies of them.
        """
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        streams = {stream.handle: stream for stream in (job.stdout, job.channel)}
        for handle in streams:
            poller.register(handle, select.POLLIN)
        stopped = False
        while True:
            left = deadline - time.monotonic()
            ready = [handle for handle, _ in poller.poll(max(0.0, left) * 1000)]
            if self._control.fileno() in ready:
                return self._receive(0.0)
            if left <= 0:
                raise WorkerStuck("no answer in time")
            for handle in ready:
                if streams[handle].read() == 0:
                    poller.unregister(handle)
                if streams[handle].overflow and not stopped:
                    self._send_stop()
                    stopped = True

    def _send_stop(self) -> None:
        try:
            self._control.send(_STOP)
        except OSError as error:
            raise WorkerDied(str(error)) from error

    def _receive(self, seconds: float) -> dict[str, Any]:
        """The next packet, waiting at most so long."""
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        try:
            packet = self._control.recv(1 << 16) if poller.poll(seconds * 1000) else b""
        except OSError as error:
            raise WorkerDied(str(error)) from error
        if not packet:
            raise WorkerDied("the server is gone")
        message: dict[str, Any] = json.loads(packet)
        return message

    def close(self) -> None:
        """Ends the server and whatever it runs, and removes its folder."""
        self._control.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._folder.close()
