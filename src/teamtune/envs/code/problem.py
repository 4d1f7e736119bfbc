"""Problems with hidden tests, and the data sets that hold them: APPS, CodeContests, LiveCodeBench.

A test is text in, text out. Where a function is tested, its arguments go in as JSON, one a line,
and what it returns comes out as JSON.
"""

import ast
import base64
import io
import json
import pickle
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from teamtune.envs.answers import parse
from teamtune.sandbox.syntax_tree import parse_tree
from teamtune.tasks import Task

_PYTHON_3 = 3
"""CodeContests' number for the language."""
_MOST_BYTES = 1 << 28
"""Of one row's tests, unpacked."""


@dataclass(frozen=True, slots=True)
class Test:
    """What a program reads, and what it should print: any one of `outputs`."""

    __test__ = False  # for pytest

    input: str
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """What is to be programmed."""

    question: str
    tests: tuple[Test, ...]
    """The golden ones, which no agent ever sees."""
    function: str = ""
    """The function under test; a method of `Solution` has that before its name. Empty where a
    program reads and prints."""
    starter: str = ""
    """Code that the solution should begin with."""
    reference: str = ""
    """A program that solves it; empty where none is known."""


def problem_of(row: Mapping[str, Any]) -> Problem:
    """The problem in a row of a known schema. Raises ValueError, which names the field.

    Known by their fields: APPS (`input_output`), CodeContests (`private_tests`), LiveCodeBench
    (`private_test_cases`), and ours, `question`, `tests` (a list of `input` and `output`) and where
    there are such `function`, `starter` and `reference`. Golden are all tests of a row, its public
    ones too. The reference is the first solution in Python 3.
    """
    for field, read in _SCHEMAS.items():
        if field in row:
            return _checked(read(row))
    raise ValueError(
        f"no tests in a known schema; the row has {', '.join(row) or 'no field'}, and one of "
        f"{', '.join(_SCHEMAS)} is needed"
    )


def data_of(problem: Problem) -> dict[str, Any]:
    """The problem as plain data, in our own schema."""
    tests = [{"input": test.input, "output": list(test.outputs)} for test in problem.tests]
    rest = {"function": problem.function, "starter": problem.starter}
    return {"question": problem.question, "tests": tests, **rest, "reference": problem.reference}


@lru_cache(maxsize=4096)
def problem_of_task(task: Task) -> Problem:
    """The problem of a task. Raises ValueError."""
    try:
        return problem_of(task.data)
    except ValueError as error:
        raise ValueError(f"task {task.id}: {error}") from error


def json_of(text: str) -> str:
    """A value that is written in JSON or as a Python literal, as JSON. Raises ValueError."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        try:
            value = ast.literal_eval(parse_tree(text.strip(), "eval"))
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
            raise ValueError(f"no value: {text[:60]!r}") from error
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"no value of JSON: {text[:60]!r}") from error


def _checked(problem: Problem) -> Problem:
    if not problem.question.strip():
        raise ValueError("question: got an empty text")
    if not problem.tests:
        raise ValueError("tests: got none, expected one or more")
    parts = problem.function.removeprefix("Solution.").split(".")
    if problem.function and not (len(parts) == 1 and parts[0].isidentifier()):
        raise ValueError(f"function: got {problem.function!r}, expected a function's name")
    return problem


def _ours(row: Mapping[str, Any]) -> Problem:
    pairs = []
    for number, test in enumerate(_typed(row["tests"], list, "tests")):
        where = f"tests[{number}]"
        test = _typed(test, dict, where)
        output = _of(test, "output", where)
        outputs = output if isinstance(output, list) else [output]
        texts = tuple(_typed(text, str, f"{where}.output") for text in outputs)
        if not texts:
            raise ValueError(f"{where}.output: got an empty list")
        pairs.append(Test(_typed(_of(test, "input", where), str, f"{where}.input"), texts))
    function, starter, reference = (_text(row, f) for f in ("function", "starter", "reference"))
    return Problem(_text(row, "question"), tuple(pairs), function, starter, reference)


def _apps(row: Mapping[str, Any]) -> Problem:
    """`input_output` is JSON: `inputs`, `outputs` and for a function `fn_name`.

    What a function returns may stand alone or in a list of its own; either is right then, as it
    is to the authors.
    """
    found = _typed(_json(row, "input_output"), dict, "input_output")
    name, starter = str(found.get("fn_name") or ""), _text(row, "starter_code")
    inputs, outputs = (
        _typed(_of(found, field, "input_output"), list, f"input_output.{field}")
        for field in ("inputs", "outputs")
    )
    if len(inputs) != len(outputs):
        raise ValueError(f"input_output: got {len(inputs)} inputs and {len(outputs)} outputs")
    solutions = _json(row, "solutions") if row.get("solutions") else []
    if not name:
        tests = [Test(_lines(i), (_lines(o),)) for i, o in zip(inputs, outputs)]
    else:
        tests = []
        for arguments, output in zip(inputs, outputs):
            given = _typed(arguments, list, "input_output.inputs")
            wrapped = output if isinstance(output, list) and len(output) == 1 else []
            accepted = tuple(map(json.dumps, (output, *wrapped)))
            tests.append(Test("\n".join(map(json.dumps, given)), accepted))
    return Problem(
        _text(row, "question"),
        tuple(tests),
        _method(name, starter),
        starter,
        _first_program(_typed(solutions, list, "solutions")),
    )


def _contests(row: Mapping[str, Any]) -> Problem:
    tests = []
    for field in ("public_tests", "private_tests", "generated_tests"):
        for one in _records(row.get(field) or {}, field):
            texts = [_typed(_of(one, name, field), str, f"{field}.{name}") for name in _IN_OUT]
            tests.append(Test(texts[0], (texts[1],)))
    known = _records(row.get("solutions") or {}, "solutions")
    programs = [s.get("solution") for s in known if s.get("language") in (_PYTHON_3, "PYTHON3")]
    return Problem(_text(row, "description"), tuple(tests), reference=_first_program(programs))


def _live(row: Mapping[str, Any]) -> Problem:
    """Tests are JSON; private ones may be packed: base64 of zlib of a pickled JSON text."""
    tests, kinds = [], set()
    for field in ("public_test_cases", "private_test_cases"):
        for number, one in enumerate(_typed(_unpacked(row, field), list, field)):
            where = f"{field}[{number}]"
            one = _typed(one, dict, where)
            read, printed = (_typed(_of(one, name, where), str, where) for name in _IN_OUT)
            kinds.add(one.get("testtype", "stdin"))
            tests.append(Test(read, (printed,)))
    if len(kinds) > 1:
        raise ValueError(f"private_test_cases: got tests of several kinds: {sorted(kinds)}")
    name, starter = "", _text(row, "starter_code")
    if kinds == {"functional"}:
        metadata = _typed(_json(row, "metadata"), dict, "metadata")
        name = _typed(_of(metadata, "func_name", "metadata"), str, "metadata.func_name")
    return Problem(_text(row, "question_content"), tuple(tests), _method(name, starter), starter)


_IN_OUT = ("input", "output")
_SCHEMAS = {
    "tests": _ours,
    "input_output": _apps,
    "private_tests": _contests,
    "private_test_cases": _live,
}
"""The field that tells a schema, and how a row is read then."""


def _method(name: str, starter: str) -> str:
    return f"Solution.{name}" if name and "class Solution" in starter else name


def _lines(value: Any) -> str:
    """A test's text, which may come as a list of lines."""
    if isinstance(value, list):
        return "\n".join(_typed(line, str, "input_output") for line in value)
    return str(_typed(value, str, "input_output"))


def _first_program(solutions: Sequence[Any]) -> str:
    """The first that is Python 3; empty where there is none."""
    texts = (text for text in solutions if isinstance(text, str))
    return next((text for text in texts if text.strip() and parse(text) is not None), "")


def _records(value: Any, field: str) -> Iterator[dict[str, Any]]:
    """The records of a field, which comes as a list of them or as a list per column."""
    if isinstance(value, list):
        yield from (_typed(record, dict, field) for record in value)
        return
    columns = _typed(value, dict, field)
    lists = [_typed(column, list, f"{field}.{name}") for name, column in columns.items()]
    if len({len(column) for column in lists}) > 1:
        raise ValueError(f"{field}: its columns have different lengths")
    yield from (dict(zip(columns, values)) for values in zip(*lists))


def _unpacked(row: Mapping[str, Any], field: str) -> Any:
    value = row.get(field) or []
    if not isinstance(value, str) or value.lstrip()[:1] in ("[", "{"):
        return _json(row, field) if value else []
    try:
        unzip = zlib.decompressobj()
        data = unzip.decompress(base64.b64decode(value, validate=True), _MOST_BYTES)
        if unzip.unconsumed_tail:
            raise ValueError(f"more than {_MOST_BYTES} bytes")
        return json.loads(_Plain(io.BytesIO(data)).load())
    except (ValueError, zlib.error, pickle.UnpicklingError, EOFError, TypeError) as error:
        raise ValueError(f"{field}: neither JSON nor packed tests: {error}") from error


class _Plain(pickle.Unpickler):
    """Reads plain values and runs nothing."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it holds a {module}.{name}")


def _json(row: Mapping[str, Any], field: str) -> Any:
    """A field that holds JSON as a text, or its value."""
    value = row.get(field)
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{field}: no JSON: {error}") from error


def _text(row: Mapping[str, Any], field: str) -> str:
    """A field that holds a text; empty where it is missing."""
    return str(_typed(row.get(field) or "", str, field))


def _of(record: Mapping[str, Any], name: str, where: str) -> Any:
    if name not in record:
        raise ValueError(f"{where}: no field {name!r}; it has {', '.join(record) or 'none'}")
    return record[name]


def _typed(value: Any, kind: type, field: str) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{field}: got {type(value).__name__}, expected {kind.__name__}")
    return value
