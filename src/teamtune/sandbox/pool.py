"""Workers for any thread to borrow; started when first needed, replaced when they die."""

import logging
import os
import queue
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

from teamtune.errors import ConfigError
from teamtune.sandbox.command import find_bubblewrap
from teamtune.sandbox.folder import sweep
from teamtune.sandbox.job import Ending, Job
from teamtune.sandbox.server.limits import Limits
from teamtune.sandbox.worker import Worker, WorkerDied

_LOG = logging.getLogger(__name__)
_TRIES = 3


class SandboxFailed(RuntimeError):
    """The sandbox's own failure, which says nothing about the program: no server starts."""


class Pool:
    """At most `size` workers of one process. Belongs to the process that made it."""

    def __init__(self, size: int, limits: Limits, bubblewrap: bool, required: tuple[str, ...]):
        """
        Args:
            size: Programs that run at the same time.
            limits: The usual limits.
            bubblewrap: Whether to use it where it works.
            required: Protections without which a worker is not used.
        """
        self.owner = os.getpid()
        self.threads = ThreadPoolExecutor(size, thread_name_prefix="sandbox")
        self._limits, self._required = limits, required
        path = find_bubblewrap() if bubblewrap else None
        self._ways = [path, None] if path else [None]
        self._has_started = False
        self._places: queue.LifoQueue[Worker | None] = queue.LifoQueue()
        for _ in range(size):
            self._places.put(None)
        sweep()
        self._alive: set[Worker] = set()
        self._lock = threading.Lock()
        self.close = weakref.finalize(self, _close_all, self._alive, self.threads, self.owner)

    def protections(self) -> dict[str, str]:
        """What holds in a worker of this pool. Raises as `_start`."""
        worker = self._places.get()
        try:
            worker = worker or self._start()
            return dict(worker.protections)
        finally:
            self._places.put(worker)

    def run(self, job: Job, limits: Limits) -> Ending:
        """Runs one program on a free worker, waiting for one. Raises WorkerDied and as `_start`."""
        worker = self._places.get()
        try:
            worker = worker or self._start()
            return worker.run(job, limits)
        except BaseException:  # Ctrl-C, too: its program's answer may still be under way
            if worker is not None:
                self._discard(worker)
                worker = None
            raise
        finally:
            self._places.put(worker)

    def pids(self) -> list[int]:
        """Process ids of the servers that were started and not discarded."""
        with self._lock:
            return sorted(worker.pid for worker in self._alive)

    def _start(self) -> Worker:
        """A new worker. Raises ConfigError where none ever started, SandboxFailed afterwards."""
        last: Exception | None = None
        for bubblewrap in self._ways:
            try:
                worker = Worker(self._limits, bubblewrap)
            except (WorkerDied, OSError) as error:
                last = error
                continue
            break
        else:
            kind = SandboxFailed if self._has_started else ConfigError
            raise kind(f"sandbox: its server does not start here ({last})") from last
        if last is not None and self._ways[0] != bubblewrap:
            _LOG.warning("sandbox: goes without bubblewrap, where its server ends: %s", last)
        self._has_started, self._ways = True, [bubblewrap] * _TRIES
        missing = [name for name in self._required if name not in worker.protections]
        if missing:
            worker.close()
            raise ConfigError(
                f"sandbox: no limit here on {', '.join(missing)}, but on "
                f"{', '.join(sorted(worker.protections))}; install bubblewrap or run on Linux 5.13 "
                "or later, or set allow_unprotected: true to run programs all the same"
            )
        with self._lock:
            self._alive.add(worker)
        return worker

    def _discard(self, worker: Worker) -> None:
        with self._lock:
            self._alive.discard(worker)
        worker.close()


def _close_all(alive: set[Worker], threads: ThreadPoolExecutor, owner: int) -> None:
    if os.getpid() != owner:
        return
    threads.shutdown(wait=False, cancel_futures=True)
    for worker in list(alive):
        worker.close()
    alive.clear()
