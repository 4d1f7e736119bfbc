"""Processes that run `judge.py`, for any thread to borrow; replaced when they end."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

_SCRIPT = str(Path(__file__).parent / "judge.py")
_FLAGS = ("-P", "-B")
"""No folder of the script on the path, where `math` would be our package; no byte code."""
_ENVIRONMENT = {"PYTHONHASHSEED": "0"}
_ALARMS = (-signal.SIGPROF, -signal.SIGALRM)
_FORWARDED = ("PATH", "PYTHONPATH", "VIRTUAL_ENV")


class JudgeFailed(RuntimeError):
    """No process that compares starts, which says nothing about an answer."""


class _Ended(Exception):
    """The process is gone; `slow` where its time was over."""

    def __init__(self, slow: bool):
        super().__init__()
        self.slow = slow


class Judges:
    """As many processes as may compare at the same time, and the threads to wait for them."""

    def __init__(self, count: int, timeout: float, memory_mb: int):
        self.owner = os.getpid()
        self.threads = ThreadPoolExecutor(count, thread_name_prefix="verifier")
        self._command = [sys.executable, *_FLAGS, _SCRIPT, str(timeout), str(memory_mb)]
        self._places: queue.LifoQueue[_Judge | None] = queue.LifoQueue()
        for _ in range(count):
            self._places.put(None)
        self._alive: set[_Judge] = set()
        self._lock = threading.Lock()
        self.close = weakref.finalize(self, _close_all, self._alive, self.threads, self.owner)

    def compare(
        self, gold: str, answer: str
    ) -> Literal["equal", "different", "unreadable", "too slow"]:
        """Asks a process; a second one where the first broke, which can be somebody else's doing.

        Raises JudgeFailed.
        """
        for _ in range(2):
            try:
                gold_read, answer_read, equal = self._ask(json.dumps([gold, answer]))
            except _Ended as end:
                if end.slow:
                    return "too slow"
                continue
            if not (gold_read and answer_read):
                return "unreadable"
            return "equal" if equal else "different"
        return "unreadable"

    def _ask(self, request: str) -> list[bool]:
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

    def ask(self, request: str) -> list[bool]:
        """Its answer, or _Ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(request + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise _Ended(self._process.wait() in _ALARMS)
        found: list[bool] = json.loads(answer)
        return found

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
