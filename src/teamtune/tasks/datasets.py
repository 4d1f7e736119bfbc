"""Tasks from files and data sets, checked row by row before anything runs."""

import re
import warnings
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from teamtune.errors import ConfigError, nearest
from teamtune.ranges import NonNegativeInt, PositiveInt
from teamtune.tasks.rows import FILES, read_rows
from teamtune.tasks.sources import TaskSource, fingerprint
from teamtune.tasks.task import Task

NGRAM = 8
_WORD = re.compile(r"\w+")


class DatasetTasks(TaskSource):
    """One task per row of a JSONL or Parquet file, or of a data set on the Hugging Face hub."""

    def __init__(
        self,
        path: str,
        fields: dict[str, str],
        split: str = "train",
        first: NonNegativeInt = 0,
        count: PositiveInt | None = None,
    ):
        """
        Args:
            path: A `.jsonl`, `.jsonl.gz` or `.parquet` file, or the name of a data set on the
                Hugging Face hub.
            fields: What a task takes from a row: the task's name of a field, and the column that
                holds it. The first one is what is to be solved; overlap is looked for in it,
                under its name in the training data.
            split: Split of a data set from the hub, e.g. `train`; files have none.
            first: Rows to leave out at the beginning.
            count: Rows to take; null takes all.

        Raises:
            ConfigError: A file that cannot be read or a row that lacks a field or leaves it empty;
                the message names file, line and field.
        """
        if not fields:
            raise ConfigError("fields: got none, allowed: one or more, e.g. {prompt: prompt}")
        self.path = path
        self.fields = fields
        ending = next((e for e in FILES if path.endswith(e)), None)
        name = Path(path).name.removesuffix(ending) if ending else f"{path}[{split}]"
        self.places: dict[str, str] = {}
        self.tasks: list[Task] = []
        for index, (place, row) in enumerate(read_rows(path, split, first, count), first):
            data = self.data_of(place, row)
            if data is None:
                continue
            task = Task(f"{name}-{index}", data)
            self.tasks.append(task)
            self.places[task.id] = place
        self.count = len(self.tasks)
        self._fingerprints = [fingerprint(task) for task in self.tasks]
        self._checked_by: object = None

    def data_of(self, place: str, row: dict[str, Any]) -> dict[str, Any] | None:
        """What a task holds of a row, None to leave it out. Raises ConfigError with its place."""
        return {name: _value(place, row, column) for name, column in self.fields.items()}

    def check(self, env: Any) -> None:
        """Raises ConfigError, with its place, for the first row that `env` cannot start from."""
        if self._checked_by is env:
            return
        for task in self.tasks:
            try:
                env.reset(task)
            except (ValueError, KeyError, TypeError) as error:
                hint = f"no field {error}" if isinstance(error, KeyError) else str(error)
                raise ConfigError(f"{self.places[task.id]}: {hint}") from error
        self._checked_by = env

    def take(self, env: object, start: int, n: int, exclude: Collection[str] = ()) -> list[Task]:
        """`n` different tasks from index `start` on, the source starting over at its end.

        Raises:
            ConfigError: Fewer than `n` rows are left, or `env` cannot start from one of them.
        """
        self.check(env)
        left = [t for t, f in zip(self.tasks, self._fingerprints) if f not in exclude]
        if n > len(left):
            raise ConfigError(
                f"{self.path}: {n} tasks are asked for at once, and it has {len(left)} rows that "
                "are not held out; ask for fewer (tasks_per_step) or give more rows"
            )
        return [left[index % len(left)] for index in range(start, start + n)]

    def overlap(self, other: TaskSource) -> str | None:
        """Rows that both have, equal up to case, spaces and punctuation.

        Rows that share a run of eight words are told in a warning; such runs may be mere phrases.
        """
        if not isinstance(other, DatasetTasks):
            return None
        found = compare(self, other)
        if found.exact:
            return str(found)
        if found.phrases:
            warnings.warn(str(found), stacklevel=2)
        return None


@dataclass(frozen=True)
class Overlap:
    """What evaluation rows have in common with training rows."""

    rows: int
    """Evaluation rows."""
    exact: tuple[str, ...]
    """Those that occur in training, each as its place and that of the training row."""
    phrases: tuple[str, ...]
    """Others that share a run of eight words with a training row, each with the first such run."""

    def __str__(self) -> str:
        counts = f"of {self.rows} evaluation rows, {len(self.exact)} occur in training"
        first = (self.exact or self.phrases or ("none",))[0]
        return f"{counts} and {len(self.phrases)} share {NGRAM} words in a row with it ({first})"


def compare(train: DatasetTasks, evaluation: DatasetTasks) -> Overlap:
    """Looks for every evaluation row's text, and for its runs of eight words, in training."""
    texts: dict[tuple[str, ...], str] = {}
    runs: dict[tuple[str, ...], str] = {}
    field = next(iter(train.fields))
    for task in train.tasks:
        words, place = _words(task, field), train.places[task.id]
        texts.setdefault(words, place)
        for run in _runs(words):
            runs.setdefault(run, place)
    exact, phrases = [], []
    for task in evaluation.tasks:
        words, place = _words(task, field), evaluation.places[task.id]
        shared = next((run for run in _runs(words) if run in runs), None)
        if words in texts:
            exact.append(f"{place} = {texts[words]}")
        elif shared:
            phrases.append(f"{place} ~ {runs[shared]}: {' '.join(shared)!r}")
    return Overlap(len(evaluation.tasks), tuple(exact), tuple(phrases))


def _words(task: Task, field: str) -> tuple[str, ...]:
    text = str(task.data.get(field, next(iter(task.data.values()))))
    return tuple(_WORD.findall(text.lower())) or (text,)


def _runs(words: tuple[str, ...]) -> Iterable[tuple[str, ...]]:
    return (words[i : i + NGRAM] for i in range(len(words) - NGRAM + 1))


def _value(place: str, row: dict[str, Any], column: str) -> Any:
    if column not in row:
        columns = ", ".join(row) or "none"
        raise ConfigError(
            f"{place}: no field {column!r}{nearest(column, row)}; the row has: {columns}"
        )
    value = row[column]
    if value is None or value in ([], {}) or (isinstance(value, str) and not value.strip()):
        raise ConfigError(f"{place}: field {column!r} is empty")
    try:
        str(value).encode()
    except UnicodeEncodeError as error:  # half of a surrogate pair, which JSON can express
        raise ConfigError(f"{place}: field {column!r} is no valid text: {error.reason}") from error
    return value
