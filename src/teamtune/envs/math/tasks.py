"""Mathematical problems as tasks, from a file or a data set on the Hugging Face hub."""

from collections.abc import Mapping
from typing import Any

from teamtune.envs.math.verifier import Verifier
from teamtune.tasks import ProblemTasks

_PROBLEM = ("problem", "Problem", "question")
_ANSWER = ("final_answer", "answer", "Answer")


class MathTasks(ProblemTasks):
    """Problems in the schema of AIME 24 or 25, OlympiadBench, Polaris or this project.

    With `skip_invalid` rows are left out, too, whose answer the verifier does not read; the
    environment refuses them.
    """

    lack = ""  # some have a problem, and an answer that is not read

    def __init__(self, path: str, skip_invalid: bool = False, **options: Any):
        """
        Args:
            path: A `.jsonl`, `.jsonl.gz` or `.parquet` file, or the name of a data set on the
                Hugging Face hub.
            skip_invalid: Leave out rows that hold no problem, or an answer that the verifier does
                not read, instead of refusing the file. A warning says how many, and the first.
        """
        self._verifier = Verifier() if skip_invalid else None
        super().__init__(path, {"problem": "problem"}, skip_invalid, **options)
        if self._verifier is not None:
            self._verifier.close()

    def read(self, row: Mapping[str, Any]) -> dict[str, Any]:
        data = problem_of(row)
        if self._verifier is not None and not self._verifier.reads(data["answer"]):
            raise ValueError(f"answer: the verifier does not read {data['answer'][:100]!r}")
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
