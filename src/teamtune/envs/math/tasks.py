"""Mathematical problems as tasks, from a file or a data set on the Hugging Face hub."""

import warnings
from collections.abc import Mapping
from typing import Any

from teamtune.envs.math.verifier import Verifier
from teamtune.errors import ConfigError
from teamtune.ranges import NonNegativeInt, PositiveInt
from teamtune.tasks import DatasetTasks

_PROBLEM = ("problem", "Problem", "question")
_ANSWER = ("final_answer", "answer", "Answer")


class MathTasks(DatasetTasks):
    """Problems in the schema of AIME 24 or 25, OlympiadBench, Polaris or this project."""

    def __init__(
        self,
        path: str,
        split: str = "train",
        first: NonNegativeInt = 0,
        count: PositiveInt | None = None,
        skip_invalid: bool = False,
    ):
        """
        Args:
            path: A `.jsonl`, `.jsonl.gz` or `.parquet` file, or the name of a data set on the
                Hugging Face hub.
            split: Split of a data set from the hub; files have none.
            first: Rows to leave out at the beginning.
            count: Rows to take; null takes all.
            skip_invalid: Leave out rows that hold no problem, or an answer that the verifier does
                not read, instead of refusing the file. A warning says how many, and the first.

        Raises:
            ConfigError: A file that cannot be read or a row that holds no problem; the message
                names file, line and field.
        """
        self.skipped: list[str] = []
        """Why rows were left out, each with its place."""
        self._verifier = Verifier() if skip_invalid else None
        super().__init__(path, {"problem": "problem"}, split, first, count)
        if not self.tasks:
            raise ConfigError(f"{path}: no row holds a problem; the first: {self.skipped[0]}")
        if self._verifier is not None:
            self._verifier.close()
        if self.skipped:
            warnings.warn(
                f"{path}: {len(self.skipped)} rows are left out; the first: {self.skipped[0]}",
                stacklevel=2,
            )

    def data_of(self, place: str, row: Mapping[str, Any]) -> dict[str, Any] | None:
        try:
            data = problem_of(row)
            if self._verifier is not None and not self._verifier.reads(data["answer"]):
                raise ValueError(f"answer: the verifier does not read {data['answer'][:100]!r}")
        except ValueError as error:
            if self._verifier is None:
                raise ConfigError(f"{place}: {error}") from error
            self.skipped.append(f"{place}: {error}")
            return None
        return data


def problem_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """`problem` and `answer` of a row of a known schema. Raises ValueError, which names the field.

    The problem is `problem`, `Problem` or `question`, in OlympiadBench behind its `context`; the
    answer `answer`, `Answer` or `final_answer`, a text or a whole number, or a list of one or more
    texts, all of which are the answer together.
    """
    problem = _only(row, _PROBLEM)
    if not isinstance(row[problem], str) or not row[problem].strip():
        raise ValueError(f"{problem}: got {row[problem]!r}, expected a text that is not empty")
    name = _only(row, _ANSWER)
    found = row[name] if isinstance(row[name], list) else [row[name]]
    texts = [str(f).strip() for f in found if isinstance(f, str | int) and not isinstance(f, bool)]
    if not texts or len(texts) < len(found) or not all(texts):
        raise ValueError(f"{name}: got {row[name]!r}, expected a text that is not empty")
    if str(row.get("error") or "").strip():
        raise ValueError(f"error: got {row['error']!r}, and tolerances of a row's own are not kept")
    about = [row.get("context"), row[problem]]
    told = "\n\n".join(text.strip() for text in about if isinstance(text, str) and text.strip())
    return {"problem": told, "answer": ", ".join(texts)}


def _only(row: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """The first of `names` that the row has."""
    for name in names:
        if name in row:
            return name
    raise ValueError(f"no field {' or '.join(names)}; the row has: {', '.join(row) or 'none'}")
