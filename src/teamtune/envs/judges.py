"""Processes that run a script which answers questions that may hang or break it.

A script, given what it takes on its command line, prints a line when it is ready. It then reads
requests as lines of JSON and prints an answer to each. It lets the kernel's alarm end it where a
request takes too long; a new process takes the next request.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import weakref
from asyncio import get_running_loop
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

_FLAGS = ("-P", "-B")
"""No folder of the script on the path, where `math` would be our package; no byte code."""
_ENVIRONMENT = {"PYTHONHASHSEED": "0"}
_ALARMS = (-signal.SIGPROF, -signal.SIGALRM)
_FORWARDED = ("PATH", "PYTHONPATH", "VIRTUAL_ENV")
_MOST_WORKERS = 8
_MAKING = threading.Lock()
Found = TypeVar("Found")


class JudgeFailed(RuntimeError):
    """No process starts, which says nothing about an answer."""


class Ended(Exception):
    """A request ended its process, and a second one too; `slow` where its time was over."""

    def __init__(self, slow: bool):
        super().__init__()
        self.slow = slow


class Judges:
    """As many processes as may answer at the same time. Safe for any thread, event loop and fork.

    They start with the first request and end with this process; a copy in another starts its own.
    """

    def __init__(self, script: Path, arguments: tuple[object, ...], workers: int | None = None):
        """
        Args:
            script: What the processes run; it imports nothing of ours.
            arguments: For its command line.
            workers: Requests at the same time; null is one per CPU, 8 at most.
        """
        self.workers = workers or min(len(os.sched_getaffinity(0)), _MOST_WORKERS)
        self._command = [sys.executable, *_FLAGS, str(script), *map(str, arguments)]
        self._pool: _Pool | None = None

    def ask(self, request: Any) -> Any:
        """The answer to a request; a second process tries where the first broke.

        That can be somebody else's doing. Raises JudgeFailed, and Ended.
        """
        for attempt in range(2):
            try:
                return self._ready().ask(json.dumps(request))
            except Ended as end:
                if end.slow or attempt:
                    raise
        raise AssertionError("unreachable")

    async def aside(self, work: Callable[..., Found], *arguments: Any) -> Found:
        """Runs what asks on a thread of its own."""
        return await get_running_loop().run_in_executor(self._ready().threads, work, *arguments)

    def close(self) -> None:
        """Ends the processes; the next request starts new ones."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": None}

    def _ready(self) -> "_Pool":
        """This process's pool; a fork of the process that made one makes its own."""
        with _MAKING:
            if self._pool is None or self._pool.owner != os.getpid():
                self._pool = _Pool(self.workers, self._command)
            return self._pool


class _Pool:
    """The processes, for any thread to borrow, and the threads to wait for them."""

    def __init__(self, count: int, command: list[str]):
        self.owner = os.getpid()
        self.threads = ThreadPoolExecutor(count, thread_name_prefix="judges")
        self._command = command
        self._places: queue.LifoQueue[_Judge | None] = queue.LifoQueue()
        for _ in range(count):
            self._places.put(None)
        self._alive: set[_Judge] = set()
        self._lock = threading.Lock()
        self.close = weakref.finalize(self, _close_all, self._alive, self.threads, self.owner)

    def ask(self, request: str) -> Any:
        judge = self._places.get()
        try:
            if judge is None:
                judge = _Judge(self._command)
                with self._lock:
                    self._alive.add(judge)
            return judge.ask(request)
        except BaseException:  # Ctrl-C, too: an answer may still be under way
            if judge is not None:
                with self._lock:
                    self._alive.discard(judge)
                judge.end()
                judge = None
            raise
        finally:
            self._places.put(judge)


class _Judge:
    """One process. Not for two threads at once."""

    def __init__(self, command: list[str]):
        """Starts it, which takes seconds. Raises JudgeFailed."""
        forwarded = {name: os.environ[name] for name in _FORWARDED if name in os.environ}
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=forwarded | _ENVIRONMENT,
                cwd="/",
                text=True,
                start_new_session=True,  # Ctrl-C is for the caller
            )
        except OSError as error:
            raise JudgeFailed(f"the verifier does not start: {error}") from error
        assert self._process.stdout is not None and self._process.stderr is not None
        if not self._process.stdout.readline():
            words = self._process.stderr.read().strip().splitlines() or ["it ended at once"]
            self.end()
            raise JudgeFailed(f"the verifier does not start: {words[-1]}")

    def ask(self, request: str) -> Any:
        """Its answer, or Ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(request + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise Ended(self._process.wait() in _ALARMS)
        return json.loads(answer)

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


def _close_all(alive: set[_Judge], threads: ThreadPoolExecutor, owner: int) -> None:
    if os.getpid() != owner:
        return
    threads.shutdown(wait=False, cancel_futures=True)
    for judge in list(alive):
        judge.end()
    alive.clear()
