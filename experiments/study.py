"""Runs an experiment: its rows, each with every seed, and then its table and its plot.

    python -m experiments.study experiments/005-grouping

`study.yaml` in the folder says what is run (`design.py` explains its keys). Every run is one
`python -m src fit` in outputs/studies/<experiment>/<row>/seed-<n>. The same command goes on after
an interruption: what has finished is left alone, what has a checkpoint is resumed. Results are
written beside study.yaml: results.json, results.md, curve.png.
"""

import argparse
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))  # from a bare checkout too

from experiments import jobs
from experiments.design import Study, read_study
from experiments.runs import OUTPUTS, Run, runs_of

from teamtune.errors import ConfigError

PARENT = "parent.txt"


def main(args: Sequence[str] | None = None) -> int:
    """The command; its exit code: 1 where a run failed, 2 for a mistake, 130 when interrupted."""
    given = sys.argv[1:] if args is None else list(args)
    options = parsed(given)
    try:
        study = read_study(options.folder)
        if study.script is not None:
            return script(study, options.dry_run)
        runs = runs_of(study, options.rows or study.rows, options.seeds or study.seeds)
        if options.report:
            report(study)
            return 0
        for run in runs:
            jobs.check(run)
        if options.dry_run:
            for run in runs:
                print(plan(run))
            return 0
        return execute(study, runs, options.jobs)
    except ConfigError as error:
        print(f"study: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        again = shlex.join(["python", "-m", "experiments.study", *given])
        print(f"study: interrupted; {again} goes on", file=sys.stderr)
        return 130


def parsed(args: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.study",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="folder with a study.yaml")
    parser.add_argument("--rows", type=names, help="some of the rows: a,b")
    parser.add_argument("--seeds", type=numbers, help="in place of the study's: 0,1")
    parser.add_argument(
        "--jobs", type=int, default=1, help="runs at once, of one thread if several"
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would run")
    parser.add_argument("--report", action="store_true", help="gather what there is, run nothing")
    options = parser.parse_args(args)
    if options.jobs < 1:
        parser.error(f"--jobs: got {options.jobs}, allowed: 1 or more")
    return options


def names(text: str) -> list[str]:
    """`a,b` as a list."""
    return [name.strip() for name in text.split(",")]


def numbers(text: str) -> list[int]:
    """`0,1` as a list."""
    return [int(name) for name in names(text)]


def plan(run: Run) -> str:
    """What would be done for a run."""
    if run.finished:
        return f"{run}: has finished"
    verb = "resume" if run.resumable else "begin"
    return f"{run}: {verb}\n    {shlex.join(['python', '-m', 'src', *jobs.command(run)])}"


def script(study: Study, dry: bool) -> int:
    """Runs the program that is the experiment instead of rows; its exit code."""
    assert study.script is not None
    words = [sys.executable, str(study.folder / study.script)]
    print(f"{study.name} has no rows of fit: {shlex.join(words)}", flush=True)
    return 0 if dry else subprocess.run(words).returncode


def execute(study: Study, runs: Sequence[Run], at_once: int) -> int:
    """Runs what is missing, under one MLflow run, and reports; the exit code."""
    tracker = parent(study)
    work = jobs.Jobs(runs, at_once, tracker.run_id)
    done = len(runs) - len(work.waiting)
    jobs.say(f"{study.name}: {len(work.waiting)} runs to do, {done} done")
    signal.signal(signal.SIGTERM, interrupt)
    status = "KILLED"
    try:
        work.work()
        status = "failed" if work.failed else "success"
    finally:
        for path in report(study):
            tracker.log_file(path)
        tracker.finalize(status)
    for run, why in work.failed.items():
        print(f"study: {run} failed: {why}", file=sys.stderr)
    return 1 if work.failed else 0


def interrupt(number: int, frame: Any) -> NoReturn:
    """SIGTERM ends a study as Ctrl-C does."""
    raise KeyboardInterrupt


def parent(study: Study) -> Any:
    """The tracker of the study's own MLflow run, which a study that goes on continues."""
    from teamtune.tracking import MLflowTracker

    known = OUTPUTS / study.name / PARENT
    run_id = known.read_text().strip() if known.exists() else None
    tracker = MLflowTracker(run_name=study.name, run_id=run_id)
    if tracker.run_id is not None:
        known.parent.mkdir(parents=True, exist_ok=True)
        known.write_text(tracker.run_id)
    return tracker


def report(study: Study) -> list[Path]:
    """Writes what finished runs found; the files, none as long as there is nothing."""
    from experiments import plot, results  # they import torch, which takes seconds

    found = results.gather(study)
    rows = list(results.lines(study, found).values())
    if not rows:
        print(f"{study.name}: no run has finished")
        return []
    return [study.folder / results.FILE, results.write_table(study, rows), plot.draw(study, rows)]


if __name__ == "__main__":
    sys.exit(main())
