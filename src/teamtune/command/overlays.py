"""The command's arguments: configuration files are merged key by key before anything parses them.

jsonargparse replaces whole dict entries, so that an overlay naming one policy would drop the
others. Options on the command line win over files, wherever they stand.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import get_loader

from teamtune.errors import ConfigError, nearest

SUBCOMMANDS = ("fit", "validate", "test", "predict")


@dataclass
class Arguments:
    """A command line with its configuration files read and merged."""

    args: list[str]
    """For the parser: at most one `--config`, which holds the merged files as text."""
    subcommand: str | None = None
    values: dict[str, Any] = field(default_factory=dict)
    """What files and options say together, as far as it can be told without the parser."""

    @property
    def asks_help(self) -> bool:
        """Whether something is to be explained instead of run."""
        names = [arg.partition("=")[0] for arg in self.args]
        return any(n in ("-h", "--help") or n.endswith(".help") for n in names)


def read_arguments(args: Sequence[str]) -> Arguments:
    """Reads the files behind `--config` and `-c`; later ones win over earlier ones.

    Raises:
        ConfigError: No or an unknown subcommand, or a file that cannot be read.
    """
    rest, files, subcommand = _split(args)
    if subcommand is None:
        if not Arguments(rest).asks_help:
            raise ConfigError(f"missing subcommand, allowed: {', '.join(SUBCOMMANDS)}")
        return Arguments(rest)
    merged: dict[str, Any] = {}
    for file in files:
        content = _read(file)
        if content and set(content) <= set(SUBCOMMANDS):
            content = content.get(subcommand) or {}
        merged = merge(merged, content)
    at = rest.index(subcommand) + 1
    config = ["--config", json.dumps(merged, default=str)] if files else []
    values = json.loads(json.dumps(merged, default=str))
    for option, value in _options(rest[at:]):
        _set(values, option.split("."), value)
    return Arguments([*rest[:at], *config, *rest[at:]], subcommand, values)


def _split(args: Sequence[str]) -> tuple[list[str], list[str], str | None]:
    """`args` without configuration files, those files, and the subcommand."""
    rest: list[str] = []
    files: list[str] = []
    subcommand = None
    pending = iter(args)
    for arg in pending:
        name, equals, value = arg.partition("=")
        if name in ("--config", "-c"):
            file = value if equals else next(pending, "")
            if not file:
                raise ConfigError(f"{name}: expected a file name")
            files.append(file)
            continue
        rest.append(arg)
        if subcommand is None and not arg.startswith("-"):
            if arg not in SUBCOMMANDS:
                raise ConfigError(
                    f"unknown subcommand {arg!r}{nearest(arg, SUBCOMMANDS)}, "
                    f"allowed: {', '.join(SUBCOMMANDS)}"
                )
            subcommand = arg
    return rest, files, subcommand


def _options(args: Sequence[str]) -> list[tuple[str, Any]]:
    """The options `--key value` and `--key=value`, values read as YAML."""
    found: list[tuple[str, Any]] = []
    pending = list(args)
    while pending:
        name, equals, value = pending.pop(0).partition("=")
        if not name.startswith("--") or name == "--print_config":
            continue
        if not equals:
            value = pending.pop(0) if pending and not pending[0].startswith("--") else ""
        try:
            found.append((name[2:], get_loader("yaml")(value)))
        except yaml.YAMLError:  # it is text then
            found.append((name[2:], value))
    return found


def _set(values: Any, path: list[str], value: Any) -> None:
    """Puts an option's value in its place; an option that goes on in a list means its last item."""
    *parents, last = path
    for name in parents:
        child = values.get(name)
        if isinstance(child, list) and child:
            inner = child[-1] = _mapping(child[-1])
        else:
            inner = values[name] = _mapping(child)
        values = inner
    if last == "class_path" and values.get(last, value) != value:
        values.pop("init_args", None)  # they were meant for the old class
    if last.endswith("+"):
        values.setdefault(last[:-1], [])
    values.update(merge(values, {last: value}))


def _mapping(value: Any) -> dict[str, Any]:
    """What options can go on in: a class's name stands for its specification."""
    if isinstance(value, str):
        return {"class_path": value}
    return value if isinstance(value, dict) else {}


def _read(file: str) -> dict[str, Any]:
    try:
        content = get_loader("yaml")(Path(file).read_text())
    except OSError as error:
        raise ConfigError(f"--config: cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"--config: {file} is no text file") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"--config: {file}: {one_line(error)}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"--config: {file}: expected a mapping of keys")
    return content


def merge(base: Any, overlay: Any) -> Any:
    """`overlay` over `base`: mappings key by key, everything else replaced.

    An overlay with another `class_path` drops the init_args that were meant for the old class; a
    key that ends in `+` appends to a list, one that ends in `-` removes an entry.
    """
    if isinstance(base, str) and isinstance(overlay, dict) and set(overlay) == {"init_args"}:
        return {"class_path": base, **overlay}
    if not (isinstance(base, dict) and isinstance(overlay, dict)):
        return overlay
    if "class_path" in base and overlay.get("class_path", base["class_path"]) != base["class_path"]:
        return overlay
    merged = dict(base)
    for key, value in overlay.items():
        name = key.rstrip("+-") if isinstance(key, str) else key
        if isinstance(key, str) and key.endswith("-"):
            if name not in merged:
                raise ConfigError(f"{key}: nothing to remove{nearest(name, merged)}")
            del merged[name]
        elif name != key and isinstance(merged.get(name), list):
            merged[name] = merged[name] + (value if isinstance(value, list) else [value])
        else:
            merged[key] = merge(merged[key], value) if key in merged else value
    return merged


def one_line(error: Exception) -> str:
    """An error's message without line breaks.

    Of a parser's list of all types that did not match, only what it says of the first one is kept.
    """
    text = str(error)
    key = re.match(r'(?:.*\n)??\s*Parser key "(.+?)":\n', text)
    _, listed, members = text.partition("Errors:\n")
    if key:
        text = f"{key[1]}: {text[key.end() :]}"
    if key and listed:
        first = re.split(r"\n\s*- |\n\s*Given value", "\n" + members)[1]
        text = f"{key[1]}: {first}"
    return " ".join(text.split())
