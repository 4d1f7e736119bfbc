"""Runs generated programs where they can harm nothing, and scores them where they cannot cheat.

A small server process per worker forks one child per program, behind limits, a filter on kernel
calls and Landlock, inside bubblewrap where that works. What is expected of a program never enters
its process: it ships values, and they are compared here.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from teamtune.errors import ConfigError
from teamtune.ranges import NonNegativeInt, Positive, PositiveInt
from teamtune.sandbox.asserts import take_apart
from teamtune.sandbox.job import Ending, Job, Probe
from teamtune.sandbox.pool import Pool
from teamtune.sandbox.result import SandboxResult
from teamtune.sandbox.scoring import score_asserts, score_run
from teamtune.sandbox.server.limits import Limits
from teamtune.sandbox.server.probe import WRITING
from teamtune.sandbox.worker import WorkerDied, WorkerStuck

_REQUIRED = ("time", "memory", "processes", "network", *WRITING)
_MOST_WORKERS = 16
_MB, _KB = 1 << 20, 1 << 10
_LONGEST, _LEAST_MEMORY = 3600.0, 64
_MAKING = threading.Lock()


class Sandbox:
    """A pool of confined workers for Python programs, which have the standard library only.

    Safe for use from any thread and from any event loop. Workers start with the first program and
    end with this process. Programs have no network, no processes of their own, an empty
    environment, a scratch folder without subfolders, and the same random numbers each time. Threads
    they may have. Without Landlock (Linux before 5.13) and bubblewrap they can read what their user
    can. Where the scratch folder can be no file system of its own they cannot remove or rename
    files in it, and without Landlock they then have none at all.
    """

    def __init__(
        self,
        timeout: Positive = 5.0,
        memory_mb: PositiveInt = 1024,
        file_mb: NonNegativeInt = 16,
        disk_mb: PositiveInt = 64,
        output_kb: PositiveInt = 1024,
        workers: PositiveInt | None = None,
        bubblewrap: bool = True,
        allow_unprotected: bool = False,
    ):
        """
        Args:
            timeout: Seconds for a program and all of its asserts together.
            memory_mb: Address space of a program in MiB, the interpreter's 40 included.
            file_mb: Largest file that it may write, in MiB.
            disk_mb: All its files together, in MiB; a thousand at most.
            output_kb: Printed text that is kept, in KiB; a program that prints more is killed.
            workers: Programs that run at the same time; null is one per CPU, 16 at most.
            bubblewrap: Use bubblewrap where it is installed and works.
            allow_unprotected: Run programs even where time, memory, processes or network cannot be
                limited, or where files of others can be created, overwritten, truncated or removed.

        Raises:
            ConfigError: A value out of its range, or a system other than Linux.
        """
        if memory_mb < _LEAST_MEMORY:
            raise ConfigError(f"memory_mb: got {memory_mb}, allowed: {_LEAST_MEMORY} or more")
        if timeout > _LONGEST:
            raise ConfigError(f"timeout: got {timeout}, allowed: {_LONGEST} or less")
        if sys.platform != "linux":
            raise ConfigError(f"sandbox: got {sys.platform}, allowed: linux (it needs seccomp)")
        self.timeout = timeout
        self.output_bytes = output_kb * _KB
        self.workers = workers or min(len(os.sched_getaffinity(0)), _MOST_WORKERS)
        self.bubblewrap = bubblewrap
        self.allow_unprotected = allow_unprotected
        self._limits = Limits(timeout, memory_mb * _MB, file_mb * _MB, disk_mb * _MB)
        self._pool: Pool | None = None

    @property
    def protection(self) -> dict[str, str]:
        """Each protection that holds here, tried and not assumed, and what enforces it.

        `reading`, `creating`, `overwriting`, `truncating` and `removing` are about files outside
        the scratch folder, `disk` about those in it. Starts a worker. Raises ConfigError where one
        that is required is missing (all but `reading` and `disk`).
        """
        return self._ready().protections()

    async def run(
        self, program: str, stdin: str = "", timeout: float | None = None
    ) -> SandboxResult:
        """Runs `program` as a script; passed: it came to its end. See `run_sync`."""
        return await self._aside(self.run_sync, program, stdin, timeout)

    def run_sync(
        self, program: str, stdin: str = "", timeout: float | None = None
    ) -> SandboxResult:
        """Runs `program` as a script that reads `stdin` and prints; its output is in `stdout`.

        Leaving with `os._exit` is an error: the end would not be its own word. `timeout` in
        seconds, None is the sandbox's own. Raises ConfigError where programs cannot be confined,
        and SandboxFailed.
        """
        return score_run(self._execute(program, None, stdin, timeout))

    async def run_tests(
        self, program: str, asserts: Sequence[str], timeout: float | None = None
    ) -> SandboxResult:
        """Tests `program`, see `run_tests_sync`."""
        return await self._aside(self.run_tests_sync, program, list(asserts), timeout)

    def run_tests_sync(
        self, program: str, asserts: Sequence[str], timeout: float | None = None
    ) -> SandboxResult:
        """Loads `program` as a module and tries each assert on it, in order, in one process.

        Args:
            program: The source; what is under `if __name__ == "__main__"` does not run.
            asserts: Assert statements, which may have others before them. The program's process
                evaluates the sides of a comparison that are its own, and what is expected never
                goes there. Where an assert cannot be taken apart like that (a loop, `f(1) == g(1)`)
                the program could cheat: it is not run and does not count.
            timeout: Seconds for all together; what has not run by then does not count.

        Raises:
            ValueError: No assert that counts.
            ConfigError: Programs cannot be confined here.
            SandboxFailed: No server starts any more, for lack of memory for instance.
        """
        if isinstance(asserts, str) or not asserts:
            raise ValueError(f"asserts: got {asserts!r}, expected a list of at least one statement")
        tests = [take_apart(source) for source in asserts]
        if not any(tests):
            raise ValueError(f"asserts: got {asserts[0]!r}, expected one that comes apart")
        probes = [(test.prelude, part.source) for test in tests if test for part in test.parts]
        return score_asserts(self._execute(program, probes, "", timeout), tests)

    def close(self) -> None:
        """Ends the workers; the next program starts new ones."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": None}

    def _ready(self) -> Pool:
        """This process's pool; a fork of the process that made one makes its own."""
        with _MAKING:
            pool = self._pool
            if pool is None or pool.owner != os.getpid():
                required = () if self.allow_unprotected else _REQUIRED
                self._pool = pool = Pool(self.workers, self._limits, self.bubblewrap, required)
            return pool

    async def _aside(self, work: Callable[..., SandboxResult], *arguments: Any) -> SandboxResult:
        """Runs the blocking form on a thread of the pool's, so every caller takes the same way."""
        threads = self._ready().threads
        return await asyncio.get_running_loop().run_in_executor(threads, work, *arguments)

    def _execute(
        self, program: str, probes: list[Probe] | None, stdin: str, timeout: float | None
    ) -> Ending:
        """Runs it; once more where the server died, which can be somebody else's doing."""
        limits = self._limits if timeout is None else self._limits._replace(timeout=timeout)
        if not 0 < limits.timeout <= _LONGEST:
            raise ValueError(f"timeout: got {timeout}, allowed: more than 0, at most {_LONGEST} s")
        for _ in range(2):
            job = Job(program, probes, stdin, self.output_bytes)
            try:
                return self._ready().run(job, limits)
            except WorkerStuck:
                return Ending("timeout", 0, limits.timeout, b"", b"")
            except WorkerDied:
                continue
            finally:
                job.close()
        return Ending("died", 0, 0.0, b"", b"")
