"""The runs of a study: the `fit` that a row and a seed stand for, and how far it has come."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from experiments.design import Study

from teamtune.command.arguments import read_arguments
from teamtune.errors import ConfigError, nearest

OUTPUTS = Path("outputs/studies")
WARM_START = "WarmStart"
NO_TRAINING = {"class_path": "experiments.untrained.EndBeforeTraining"}


def runs_of(study: Study, rows: Iterable[str], seeds: Sequence[int]) -> list["Run"]:
    """The runs of some rows and seeds, and before them those that they start from.

    Raises:
        ConfigError: A row that does not exist.
    """
    needed: set[str] = set()
    for name in rows:
        if name not in study.rows:
            raise ConfigError(f"--rows: unknown {name}{nearest(name, study.rows)}")
        needed |= {name, *study.below(name)}
    return [Run(study, row, seed) for seed in seeds for row in study.rows if row in needed]


@dataclass(frozen=True)
class Run:
    """One row with one seed, and what its folder holds."""

    study: Study
    row: str
    seed: int

    def __str__(self) -> str:
        return f"{self.row}/seed-{self.seed}"

    @property
    def folder(self) -> Path:
        """Where its sessions (`run-NNN`), its log and its starts are."""
        return OUTPUTS / self.study.name / self.row / f"seed-{self.seed}"

    @property
    def sources(self) -> list["Run"]:
        """The runs, of the same seed, that have to be finished before it."""
        return [Run(self.study, row, self.seed) for row in self.study.below(self.row)]

    @cached_property
    def _own(self) -> list[str]:
        """The command line of `fit`, as if it started from nothing."""
        study, row = self.study, self.study.rows[self.row]
        words = ["fit"]
        for config in [*study.configs, *row.configs]:
            beside = study.folder / config
            words += ["--config", str(beside if beside.exists() else config)]
        for key, value in {**study.options, **row.options}.items():
            words += [f"--{key}", value]
        words += ["--seed_everything", str(self.seed)]
        words += ["--trainer.default_root_dir", str(self.folder)]
        return words

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What its files and options say together, as if it started from nothing."""
        return read_arguments(self._own).values

    @property
    def arguments(self) -> list[str]:
        """The command line of `fit`, without what resumes and tracks it."""
        row, words = self.study.rows[self.row], list(self._own)
        for policy, source in self._starts().items():
            words += [f"--model.policies.{policy}.init_args.model", str(source)]
        callbacks = self.settings["trainer"].get("callbacks") or []
        kept = [c for c in callbacks if not (row.start_from and _is_warm_start(c))]
        kept += [] if row.train else [NO_TRAINING]
        if kept != callbacks:  # null first, for a list would be merged with the one that is there
            words += ["--trainer.callbacks", "null"]
            words += ["--trainer.callbacks", json.dumps(kept)] if kept else []
        return words

    @property
    def policies(self) -> list[str]:
        """Their names."""
        return list(self.settings["model"]["policies"])

    def _starts(self) -> dict[str, Path]:
        """The folder that each policy which starts from another run begins with."""
        start = self.study.rows[self.row].start_from
        if start is None:
            return {}
        if isinstance(start, dict):
            named = {policy: place.partition("/") for policy, place in start.items()}
            return {p: self._source(row).export(name or p) for p, (row, _, name) in named.items()}
        source = self._source(start)
        return {policy: source.export(policy) for policy in self.policies}

    def _source(self, row: str) -> "Run":
        return Run(self.study, row, self.seed)

    def export(self, policy: str) -> Path:
        """The folder of a policy's weights, which is there once the run has finished.

        A run with one policy gives that one, whatever it is called.

        Raises:
            ConfigError: It has several, and none of that name.
        """
        known = self.policies
        if policy not in known and len(known) > 1:
            raise ConfigError(f"start_from: {self} has no policy {policy}{nearest(policy, known)}")
        name = policy if policy in known else known[0]
        found = sorted(self.folder.glob("run-*/export"))
        return (found[-1] if found else self.folder / "run-001" / "export") / name

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        """Those of its newest session that has some."""
        found = sorted(self.folder.glob("run-*/evaluations.json"))
        return json.loads(found[-1].read_text()) if found else []

    @property
    def last_step(self) -> int:
        """The step of the evaluation with which it ends.

        Raises:
            ConfigError: It would never end.
        """
        if not self.study.rows[self.row].train:
            return 0
        steps = self.settings["trainer"].get("max_epochs", -1)
        if steps < 1:
            raise ConfigError(
                f"rows.{self.row}: trainer.max_epochs: got {steps}, allowed: 1 or more"
            )
        return steps

    @property
    def evaluated(self) -> bool:
        """Whether its last evaluation has been made."""
        evaluations = self.evaluations
        return bool(evaluations) and evaluations[-1]["step"] == self.last_step

    @property
    def finished(self) -> bool:
        """Whether it came to its end: evaluated and exported."""
        return self.evaluated and any(self.folder.glob("run-*/export"))

    @property
    def resumable(self) -> bool:
        """Whether it was interrupted and has a checkpoint with steps left."""
        return not self.evaluated and any(self.folder.glob("run-*/checkpoints/last.ckpt"))


def _is_warm_start(callback: Any) -> bool:
    path = callback["class_path"] if isinstance(callback, dict) else callback
    return str(path).rpartition(".")[2] == WARM_START
