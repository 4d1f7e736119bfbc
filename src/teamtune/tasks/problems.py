"""Tasks from data of several schemas, in which a row may hold nothing that can be solved."""

import warnings
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from teamtune.errors import ConfigError
from teamtune.tasks.datasets import DatasetTasks


class ProblemTasks(DatasetTasks):
    """One task per row that holds a problem; what its schema is, the row says by its fields."""

    lack: ClassVar[str] = "hold no problem and "
    """What is said of rows that are left out."""

    def __init__(
        self, path: str, fields: dict[str, str], skip_invalid: bool = False, **options: Any
    ):
        """
        Args:
            path: A `.jsonl`, `.jsonl.gz` or `.parquet` file, or the name of a data set on the
                Hugging Face hub.
            fields: The task's field that overlap is looked for in.
            skip_invalid: Leave out rows that hold no problem, instead of refusing the file. A
                warning says how many, and the first.

        Raises:
            ConfigError: A file that cannot be read or a row that holds no problem; the message
                names file, line and field.
        """
        self.skip_invalid = skip_invalid
        self.skipped: list[str] = []
        """Why rows were left out, each with its place."""
        super().__init__(path, fields, **options)
        if not self.tasks:
            raise ConfigError(f"{path}: no row holds a problem; the first: {self.skipped[0]}")
        if self.skipped:
            warnings.warn(
                f"{path}: {len(self.skipped)} rows {self.lack}are left out; the first: "
                f"{self.skipped[0]}",
                stacklevel=2,
            )

    @abstractmethod
    def read(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """What a task holds of a row. Raises ValueError, which names the field, where it cannot."""

    def data_of(self, place: str, row: Mapping[str, Any]) -> dict[str, Any] | None:
        try:
            return self.read(row)
        except ValueError as error:
            if not self.skip_invalid:
                raise ConfigError(f"{place}: {error}") from error
            self.skipped.append(f"{place}: {error}")
            return None
