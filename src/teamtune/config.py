"""Configuration files: several are merged key by key before parsing, and errors become one line."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from teamtune.errors import ConfigError


def merge_config_arguments(args: Sequence[str]) -> list[str]:
    """`args` with all `--config FILE` replaced by one that holds their merged content.

    jsonargparse replaces whole dict entries, so that an overlay naming one policy would drop the
    others; merging first keeps them. Later files win over earlier ones.
    """
    rest: list[str] = []
    files: list[str] = []
    place = None
    pending = iter(args)
    for arg in pending:
        if arg in ("--config", "-c"):
            value = next(pending, None)
            if value is None:
                raise ConfigError("--config: expected a file name")
        elif arg.startswith("--config="):
            value = arg.partition("=")[2]
        else:
            rest.append(arg)
            continue
        place = len(rest) if place is None else place
        files.append(value)
    if place is None:
        return rest
    merged: dict[str, Any] = {}
    for file in files:
        merged = merge(merged, _read(file))
    return [*rest[:place], "--config", yaml.safe_dump(merged, sort_keys=False), *rest[place:]]


def _read(file: str) -> dict[str, Any]:
    try:
        content = yaml.safe_load(Path(file).read_text())
    except OSError as error:
        raise ConfigError(f"--config: cannot read {file}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"--config: {file}: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"--config: {file}: expected a mapping of keys")
    return content


def merge(base: Any, overlay: Any) -> Any:
    """`overlay` over `base`: mappings key by key, everything else replaced.

    An overlay with another `class_path` drops the init_args that were meant for the old class.
    """
    if not (isinstance(base, dict) and isinstance(overlay, dict)):
        return overlay
    if "class_path" in base and overlay.get("class_path", base["class_path"]) != base["class_path"]:
        return overlay
    merged = dict(base)
    for key, value in overlay.items():
        merged[key] = merge(merged[key], value) if key in merged else value
    return merged


def one_line(error: Exception) -> str:
    """An error's message without line breaks."""
    return " ".join(str(error).split())
