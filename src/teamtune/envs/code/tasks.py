"""Programming problems as tasks, from a file or a data set on the Hugging Face hub."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from teamtune.envs.code.problem import data_of, problem_of
from teamtune.errors import ConfigError
from teamtune.ranges import NonNegativeInt, PositiveInt
from teamtune.tasks import DatasetTasks


class CodeTasks(DatasetTasks):
    """Problems in the schema of APPS, CodeContests, LiveCodeBench or this project.

    A row says by its fields which schema it has, see `problem_of`. What rows lack is told once, in
    a warning: how many have no reference program, by which a tester is rewarded, and how many were
    left out.
    """

    def __init__(
        self,
        path: str,
        split: str = "train",
        first: NonNegativeInt = 0,
        count: PositiveInt | None = None,
        max_tests: PositiveInt | None = None,
        skip_invalid: bool = False,
    ):
        """
        Args:
            path: A `.jsonl`, `.jsonl.gz` or `.parquet` file, or the name of a data set on the
                Hugging Face hub.
            split: Split of a data set from the hub; files have none.
            first: Rows to leave out at the beginning.
            count: Rows to take; null takes all.
            max_tests: Golden tests to take of each problem, the first ones; null takes all. With
                fewer, a program that counts as right may fail a later one.
            skip_invalid: Leave out rows that hold no problem, instead of refusing the file.

        Raises:
            ConfigError: A file that cannot be read or a row that holds no problem; the message
                names file, line and field.
        """
        self.max_tests = max_tests
        self.skip_invalid = skip_invalid
        self.skipped: list[str] = []
        """Why rows were left out, each with its place."""
        super().__init__(path, {"question": "question"}, split, first, count)
        if not self.tasks:
            raise ConfigError(f"{path}: no row holds a problem; the first: {self.skipped[0]}")
        if self.skipped:
            warnings.warn(
                f"{path}: {len(self.skipped)} rows hold no problem and are left out; the first: "
                f"{self.skipped[0]}",
                stacklevel=2,
            )
        without = [self.places[task.id] for task in self.tasks if not task.data["reference"]]
        if without:
            warnings.warn(
                f"{path}: {len(without)} of {self.count} problems have no reference program; a "
                f"tester has the team's reward alone there; the first: {without[0]}",
                stacklevel=2,
            )

    def data_of(self, place: str, row: Mapping[str, Any]) -> dict[str, Any] | None:
        try:
            problem = problem_of(row)
        except ValueError as error:
            if not self.skip_invalid:
                raise ConfigError(f"{place}: {error}") from error
            self.skipped.append(f"{place}: {error}")
            return None
        return data_of(replace(problem, tests=problem.tests[: self.max_tests]))
