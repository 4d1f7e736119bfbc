"""Programming problems as tasks, from a file or a data set on the Hugging Face hub."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from teamtune.envs.code.problem import data_of, problem_of
from teamtune.ranges import PositiveInt
from teamtune.tasks import ProblemTasks


class CodeTasks(ProblemTasks):
    """Problems in the schema of APPS, CodeContests, LiveCodeBench or this project.

    See `problem_of`. How many have no reference program, by which a tester is rewarded, is told
    once, in a warning.
    """

    def __init__(self, path: str, max_tests: PositiveInt | None = None, **options: Any):
        """
        Args:
            path: A `.jsonl`, `.jsonl.gz` or `.parquet` file, or the name of a data set on the
                Hugging Face hub.
            max_tests: Golden tests to take of each problem, the first ones; null takes all. With
                fewer, a program that counts as right may fail a later one.
        """
        self.max_tests = max_tests
        super().__init__(path, {"question": "question"}, **options)
        without = [self.places[task.id] for task in self.tasks if not task.data["reference"]]
        if without:
            warnings.warn(
                f"{path}: {len(without)} of {self.count} problems have no reference program; a "
                f"tester has the team's reward alone there; the first: {without[0]}",
                stacklevel=2,
            )

    def read(self, row: Mapping[str, Any]) -> dict[str, Any]:
        problem = problem_of(row)
        return data_of(replace(problem, tests=problem.tests[: self.max_tests]))
