"""What a study found: `results.json`, and the table that is made of it.

A row's value is the mean over its seeds. Two intervals of 95 % go with it: over seeds, Student's of
the mean; over tasks, Wilson's of that mean on the tasks of one evaluation, for all seeds play the
same ones. Tokens are those generated for training.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.curves import Point, mean, seed_interval, tokens_to, value_at
from experiments.design import Study
from experiments.jobs import STARTS
from experiments.runs import OUTPUTS, Run

from teamtune.experience.metrics import wilson_interval

FILE = "results.json"


def gather(study: Study) -> dict[str, Any]:
    """What finished runs found, over what the study's file has of others; written and returned.

    By row and seed: `starts` (command, commit, cpu, cores and time of every session) and
    `evaluations`, as a run's `evaluations.json` has them.
    """
    path = study.folder / FILE
    before = json.loads(path.read_text())["rows"] if path.exists() else {}
    rows: dict[str, Any] = {}
    for name in study.rows:
        rows[name] = dict(before.get(name, {}))
        for folder in sorted((OUTPUTS / study.name / name).glob("seed-*")):
            run = Run(study, name, int(folder.name.removeprefix("seed-")))
            if run.finished:
                lines = (run.folder / STARTS).read_text().splitlines()
                starts = [json.loads(line) for line in lines]
                rows[name][str(run.seed)] = {"starts": starts, "evaluations": run.evaluations}
    found = {"question": study.question, "rows": {name: r for name, r in rows.items() if r}}
    path.write_text(json.dumps(found, indent=1) + "\n")
    return found


@dataclass(frozen=True)
class Line:
    """A row of the study with results."""

    label: str
    trained: bool
    curves: list[list[Point]]
    """Of every seed."""
    tasks: int
    """Of one evaluation."""
    minutes: list[float]
    """Of every seed; of a run whose time was not kept, nothing."""

    @property
    def ends(self) -> list[float]:
        """The metric at the end of every seed's run."""
        return [curve[-1][1] for curve in self.curves]

    @property
    def tokens(self) -> list[float]:
        """Generated in all, of every seed."""
        return [curve[-1][0] for curve in self.curves]


def lines(study: Study, found: dict[str, Any]) -> dict[str, Line]:
    """The rows with results by name, in the study's order."""
    made = {}
    for name, seeds in found["rows"].items():
        runs = [run["evaluations"] for run in seeds.values()]
        curves = [[(float(e["tokens"]), e[study.metric]) for e in run] for run in runs]
        seconds = [run[-1].get("seconds") for run in runs]
        minutes = [s / 60 for s in seconds if s is not None]
        row, tasks = study.rows[name], runs[0][-1]["tasks"]
        made[name] = Line(row.label, row.train, curves, tasks, minutes)
    return made


def budget(rows: Sequence[Line]) -> float:
    """The tokens that every run of a trained row has generated at least; 0 where none was."""
    return min((t for row in rows if row.trained for t in row.tokens), default=0.0)


def table(study: Study, rows: Sequence[Line]) -> str:
    """Markdown: a line per row, and below it at which budget of tokens rows are compared."""
    equal = budget(rows)
    head = ["", "seeds", f"{study.metric} at the end", "interval over seeds"]
    head += ["interval over tasks", f"at {equal:,.0f} tokens"]
    if study.threshold is not None:
        head.append(f"tokens to {percent(study.threshold)}")
    cells = [[*head, "tokens generated", "minutes"]]
    for row in rows:
        cells.append([row.label, str(len(row.curves)), percent(mean(row.ends))])
        cells[-1] += [span(seed_interval(row.ends)), _over_tasks(study, row)]
        at = [value_at(curve, equal) for curve in row.curves]
        cells[-1].append(percent(mean(at)) if row.trained else "")
        if study.threshold is not None:
            cells[-1].append(_reached(row, study.threshold) if row.trained else "")
        cells[-1].append(f"{mean(row.tokens):,.0f}" if row.trained else "")
        cells[-1].append(f"{mean(row.minutes):.1f}" if row.minutes else "")
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    text = ["| " + " | ".join(c.ljust(w) for c, w in zip(r, widths)) + " |" for r in cells]
    text.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    if equal:
        most = max(t for row in rows if row.trained for t in row.tokens)
        text += [
            "",
            f"Tokens that the runs of trained rows generated: {equal:,.0f} to {most:,.0f}.",
        ]
    return "\n".join(text) + "\n"


def _over_tasks(study: Study, row: Line) -> str:
    if study.metric != "success":
        return ""  # a share of a reward is no count of tasks
    return span(wilson_interval(round(mean(row.ends) * row.tasks), row.tasks))


def _reached(row: Line, threshold: float) -> str:
    """Mean tokens over the seeds that reach it, and how many do where not all."""
    reached = [t for t in (tokens_to(curve, threshold) for curve in row.curves) if t is not None]
    if not reached:
        return "not reached"
    part = "" if len(reached) == len(row.curves) else f" ({len(reached)} of {len(row.curves)})"
    return f"{mean(reached):,.0f}{part}"


def percent(share: float) -> str:
    """As in `97.3 %`."""
    return f"{100 * share:.1f} %"


def span(interval: tuple[float, float] | None) -> str:
    """As in `96.1–98.1 %`; empty for none."""
    return "" if interval is None else f"{100 * interval[0]:.1f}–{100 * interval[1]:.1f} %"


def write_table(study: Study, rows: Sequence[Line]) -> Path:
    """Writes and prints it; where it is."""
    path = study.folder / "results.md"
    text = table(study, rows)
    path.write_text(f"{study.question}\n\n{text}")
    print(f"\n{text}")
    return path
