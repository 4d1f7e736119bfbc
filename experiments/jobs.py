"""The runs of a study as processes: several at once, each with a log, stopped and taken up again.

A run that fails does not stop the others, except those that start from it.
"""

import json
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from experiments.runs import Run

from teamtune.command.arguments import read_arguments
from teamtune.errors import ConfigError

ROOT = Path(__file__).parents[1]
TRACKER = "teamtune.tracking.MLflowTracker"
LOG = "log.txt"
STARTS = "starts.jsonl"
VALUES = "values.json"
PAUSE = 0.2
"""Seconds between looks at the processes."""


def command(run: Run, parent: str | None = None) -> list[str]:
    """The words after `python -m src`; a run that was interrupted is resumed.

    Args:
        run: Not finished.
        parent: The study's MLflow run.
    """
    words = list(run.arguments)
    if "logger" not in run.settings["trainer"]:  # a logger of the user's own is left alone
        settings = {"run_name": f"{run.study.name}/{run}", "parent_run_id": parent}
        logger = {"class_path": TRACKER, "init_args": settings}
        words += ["--trainer.logger", json.dumps(logger)]
    return [*words, "--ckpt_path", "last"] if run.resumable else words


def check(run: Run) -> None:
    """Raises ConfigError where a run's folder was made with other settings than it has now."""
    known = run.folder / VALUES
    if known.exists() and known.read_text() != values(run):
        raise ConfigError(
            f"{run.folder}: made with other settings than rows.{run.row} has now; remove the "
            "folder to run it again"
        )


def values(run: Run) -> str:
    """All settings of a run, as they are kept with it."""
    return json.dumps(read_arguments(run.arguments).values, indent=1) + "\n"


class Jobs:
    """Runs what is not finished, and keeps what failed.

    Attributes:
        failed: Runs that ended with an error, or could not start, and why.
    """

    def __init__(self, runs: Sequence[Run], at_once: int, parent: str | None):
        """
        Args:
            runs: Those that others start from come first.
            at_once: How many processes; with several each computes with one thread.
            parent: The study's MLflow run.
        """
        self.waiting = [run for run in runs if not run.finished]
        self.at_once, self.parent = at_once, parent
        self.running: dict[Run, subprocess.Popen[bytes]] = {}
        self.failed: dict[Run, str] = {}

    def work(self) -> None:
        """Returns when all have ended; interrupted, it stops them, and they save what they have."""
        try:
            while self.waiting or self.running:
                self._start()
                time.sleep(PAUSE)
                for run, process in list(self.running.items()):
                    if (code := process.poll()) is not None:
                        self._end(run, code)
        finally:
            self._stop()

    def _start(self) -> None:
        for run in list(self.waiting):
            if len(self.running) == self.at_once:
                return
            if broken := [source for source in run.sources if source in self.failed]:
                self.waiting.remove(run)
                self._fail(run, f"it starts from {broken[0]}, which failed")
            elif not {*run.sources} & {*self.running, *self.waiting}:
                self.waiting.remove(run)
                self.running[run] = self._process(run)

    def _process(self, run: Run) -> "subprocess.Popen[bytes]":
        words = command(run, self.parent)
        run.folder.mkdir(parents=True, exist_ok=True)
        (run.folder / VALUES).write_text(values(run))
        start = {"command": shlex.join(["python", "-m", "src", *words]), **circumstances()}
        with (run.folder / STARTS).open("a") as file:
            file.write(json.dumps(start) + "\n")
        say(f"{run}: {'resumed' if run.resumable else 'begins'}, log in {run.folder / LOG}")
        paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"} if self.at_once > 1 else {}
        with (run.folder / LOG).open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "src", *words],
                env={**os.environ, **threads, "PYTHONPATH": paths},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches it once, from here
            )

    def _end(self, run: Run, code: int) -> None:
        del self.running[run]
        if code:
            self._fail(run, f"exit code {code}, see {run.folder / LOG}")
        elif not run.finished:
            self._fail(run, f"ended without its last evaluation, see {run.folder / LOG}")
        else:
            say(f"{run}: finished")

    def _fail(self, run: Run, why: str) -> None:
        self.failed[run] = why
        say(f"{run}: failed: {why}")

    def _stop(self) -> None:
        """Tells what still runs to end, and waits; told again, it ends them at once."""
        for process in self.running.values():
            process.terminate()
        with suppress(KeyboardInterrupt):
            for process in self.running.values():
                process.wait()
        for process in self.running.values():
            if process.poll() is None:
                process.kill()


def circumstances() -> dict[str, Any]:
    """Commit and machine of a run that starts now."""
    git = ["git", "-C", str(ROOT)]
    commit = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD"], capture_output=True)
    return {
        "commit": commit.stdout.strip() + ("+changes" if changed.returncode == 1 else ""),
        "cpu": cpu(),
        "cores": os.cpu_count(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def cpu() -> str:
    """The processor's name."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def say(text: str) -> None:
    """A line for who watches."""
    print(f"{datetime.now():%H:%M:%S} {text}", flush=True)
