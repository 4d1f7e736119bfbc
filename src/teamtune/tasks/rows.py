"""Rows of JSONL, Parquet and Hugging Face data sets, each with the place where it stands."""

import gzip
import json
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from teamtune.errors import ConfigError

FILES = (".jsonl", ".jsonl.gz", ".parquet")
Row = tuple[str, dict[str, Any]]
"""`file:line` (or `file, row n`) and the columns."""


def read_rows(path: str, split: str, first: int, count: int | None) -> list[Row]:
    """Rows `first` to `first + count` (null: to the end) of a local file or a hub's data set.

    Raises:
        ConfigError: It cannot be read, a line is no JSON object, or no row is left.
    """
    local = Path(path)
    if path.endswith(".parquet"):
        rows = _parquet(local)
    elif path.endswith(FILES):
        rows = _jsonl(local)
    elif local.is_file():
        raise ConfigError(
            f"path: got {path!r}, allowed: a .jsonl, .jsonl.gz or .parquet file, or the name of a "
            "Hugging Face data set"
        )
    else:
        rows = _hub(path, split)
    taken = list(islice(rows, first, None if count is None else first + count))
    if not taken or (count is not None and len(taken) < count):
        wanted = "one or more" if count is None else str(count)
        raise ConfigError(f"{path}: wanted {wanted} rows from row {first} on, got {len(taken)}")
    return taken


def _jsonl(path: Path) -> Iterator[Row]:
    try:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    row = json.loads(line.rstrip())
                except json.JSONDecodeError as error:
                    raise ConfigError(
                        f"{path}:{number}: no JSON: {error.msg} at column {error.colno}"
                    ) from error
                except (ValueError, RecursionError) as error:  # too large a number, too deep
                    raise ConfigError(f"{path}:{number}: cannot read it: {error}") from error
                if not isinstance(row, dict):
                    raise ConfigError(
                        f"{path}:{number}: expected a JSON object, got a {type(row).__name__}"
                    )
                yield f"{path}:{number}", row
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"path: cannot read {path}: {reason}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"path: {path} is no UTF-8 text: {error.reason}") from error


def _parquet(path: Path) -> Iterator[Row]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ConfigError(f'path: {path} needs `pip install "teamtune[data]"`') from error
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches():
                for row in batch.to_pylist():
                    yield f"{path}, row {number}", row
                    number += 1
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise ConfigError(f"path: cannot read {path}: {str(error).splitlines()[0]}") from error


def _hub(name: str, split: str) -> Iterator[Row]:
    try:
        import datasets
    except ImportError as error:
        raise ConfigError(
            f"path: {name!r} is no local file, and data sets from the hub need `pip install "
            '"teamtune[data]"`'
        ) from error
    try:
        rows = datasets.load_dataset(name, split=split)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"path: cannot load {name!r}, split {split!r}: {reason}") from error
    for number, row in enumerate(rows):
        yield f"{name}[{split}], row {number}", row
