"""The command line: its files are read and merged, and its options win, wherever they stand."""

import copy
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml
from jsonargparse import get_loader

from teamtune.command.overlays import merge, read_file
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
        content: Any = read_file(file)
        if content and set(content) <= set(SUBCOMMANDS):
            content = content.get(subcommand) or {}
        if not isinstance(content, dict):
            raise ConfigError(f"--config: {file}: expected a mapping of keys under {subcommand}")
        merged = merge(merged, content)
    at = rest.index(subcommand) + 1
    values = copy.deepcopy(merged)
    options: list[str] = []
    for words, name, value in _options(rest[at:]):
        if _replaces(merged, name, value):
            _set(merged, name.split("."), value)
        else:
            options += words
        if name:
            _set(values, name.split("."), value)
    config = ["--config", json.dumps(merged)] if files else []
    return Arguments([*rest[:at], *config, *options], subcommand, values)


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


def _options(args: Sequence[str]) -> Iterator[tuple[list[str], str, Any]]:
    """`--key value` and `--key=value`: the words, the key and the value read as YAML.

    Of words that are something else the key is empty.
    """
    pending = list(args)
    while pending:
        words = [pending.pop(0)]
        name, equals, value = words[0].partition("=")
        if not name.startswith("--") or name in ("--help", "--print_config"):
            yield words, "", None
            continue
        if not equals and pending and not pending[0].startswith("--"):
            value = pending.pop(0)
            words.append(value)
        try:
            yield words, name[2:], get_loader("yaml")(value)
        except (yaml.YAMLError, ValueError, RecursionError):  # it is text then
            yield words, name[2:], value


def _replaces(values: Any, name: str, value: Any) -> bool:
    """Whether an option puts another object where the files have one, or changes its class.

    The parser would keep what the old one had; `merge` knows better.
    """
    *parents, last = name.split(".")
    for parent in parents:
        values = values.get(parent) if isinstance(values, dict) else None
    if not isinstance(values, dict) or last not in values or isinstance(value, (bool, int, float)):
        return False
    if isinstance(value, str) and value.endswith((".yaml", ".yml", ".json")):
        return False
    return last == "class_path" or isinstance(values[last], (dict, list))


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
    if last == "class_path" and last in values:
        merged = merge(values, {last: value})
        values.clear()
        values.update(merged)
        return
    if last.endswith("+"):
        values.setdefault(last[:-1], [])
    values.update(merge(values, {last: value}))


def _mapping(value: Any) -> dict[str, Any]:
    """What options can go on in: a class's name stands for its specification."""
    if isinstance(value, str):
        return {"class_path": value}
    return value if isinstance(value, dict) else {}
