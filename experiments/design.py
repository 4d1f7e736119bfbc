"""What a study is made of: its `study.yaml`.

A row is a `fit` of some configurations. With `start_from` its policies begin with the weights that
another row has exported: so a warm start, a row with `train: false`, is made once per seed and
shared, policies are swapped, and roles that were trained alone are put together.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from jsonargparse import ArgumentError, ArgumentParser

from teamtune.command.overlays import read_file
from teamtune.errors import ConfigError
from teamtune.ranges import NonNegativeInt, PositiveShare

FILE = "study.yaml"


@dataclass
class Row:
    """One line of the table."""

    label: str
    """What it is called in table and plot."""
    configs: list[str] = field(default_factory=list)
    """Files that are laid over those of the study; relative to its folder, else to the root."""
    options: dict[str, str] = field(default_factory=dict)
    """Dotted settings that win over files; values as on the command line, or as YAML has them."""
    start_from: str | dict[str, str] | None = None
    """A row above, whose exported policies the policies of the same name begin with, or all, if it
    has one only. Or, by policy, `row/policy`; policies that are not named keep their model. A row
    that starts from another one has no warm start of its own."""
    train: bool = True
    """False evaluates and exports what would be trained, after the warm start if there is one."""


@dataclass(eq=False)
class Study:
    """An experiment: a question, the rows that answer it, and the seeds that each is run with."""

    question: str
    rows: dict[str, Row] = field(default_factory=dict)
    """By the name that `--rows` and folders have."""
    seeds: list[NonNegativeInt] = field(default_factory=lambda: [0])
    configs: list[str] = field(default_factory=list)
    """Files that lie below those of every row."""
    options: dict[str, str] = field(default_factory=dict)
    """Dotted settings of every row; a row's own win."""
    metric: Literal["success", "share"] = "success"
    """What table and plot show: success, or the joint reward as a share of the largest."""
    threshold: PositiveShare | None = None
    """The table says how many generated tokens a row takes to this value of the metric."""
    script: str | None = None
    """A program that is the experiment instead of rows."""
    folder: Path = Path(".")

    @property
    def name(self) -> str:
        """That of its folder."""
        return self.folder.resolve().name

    def below(self, row: str) -> list[str]:
        """The rows that a row starts from, and those that they start from, first ones first."""
        start = self.rows[row].start_from or {}
        named = [start] if isinstance(start, str) else start.values()
        sources = list(dict.fromkeys(name.partition("/")[0] for name in named))
        return [name for source in sources for name in [*self.below(source), source]]

    def check(self) -> None:
        """Raises ConfigError where rows start from rows that are not above them."""
        above: set[str] = set()
        if bool(self.rows) == (self.script is not None):
            raise ConfigError(f"{self.folder / FILE}: allowed: rows, or a script")
        for name, row in self.rows.items():
            start = row.start_from or {}
            for source in [start] if isinstance(start, str) else start.values():
                if source.partition("/")[0] not in above:
                    allowed = ", ".join(sorted(above)) or "nothing"
                    raise ConfigError(
                        f"rows.{name}.start_from: got {source}, allowed: rows above it ({allowed})"
                    )
            above.add(name)


def read_study(folder: Path) -> Study:
    """The study of an experiment's folder.

    Raises:
        ConfigError: There is none, or its file has unknown keys or values out of their range.
    """
    content = read_file(folder / FILE)
    for part in (content, *_mapping(content.get("rows")).values()):
        if options := _mapping(_mapping(part).get("options")):
            part["options"] = {
                k: v if isinstance(v, str) else json.dumps(v) for k, v in options.items()
            }
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(Study, skip={"folder"})
    try:
        study = Study(**vars(parser.instantiate(parser.parse_object(content))), folder=folder)
    except ArgumentError as error:
        raise ConfigError(f"{folder / FILE}: {' '.join(str(error).split())}") from error
    study.check()
    return study


def _mapping(value: Any) -> dict[str, Any]:
    """An empty one for anything else, which the parser refuses."""
    return value if isinstance(value, dict) else {}
