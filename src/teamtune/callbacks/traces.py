"""Samples of rollouts to look at: a page in the run folder, and the same as trees of spans."""

import json
import time
from collections.abc import Sequence
from typing import Any

import lightning as L
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from teamtune import ranks
from teamtune.callbacks.base import TeamCallback
from teamtune.experience.page import Page
from teamtune.experience.plain import plain
from teamtune.ranges import NonNegativeInt
from teamtune.tracking import MLflowTracker, Span


class RolloutTraces(TeamCallback):
    """Shows a few training rollouts in `<run folder>/rollouts.html`: prompts, answers, credit.

    The page has the newest samples of the whole run, those from before a resume among them.
    """

    def __init__(self, every_n_steps: NonNegativeInt = 50, num_tasks: NonNegativeInt = 2):
        """
        Args:
            every_n_steps: Rollout steps between samples, from the first step on; 0 shows none.
            num_tasks: Tasks that are shown each time, with all their rollouts.
        """
        self.every_n_steps = every_n_steps
        self.num_tasks = num_tasks
        self.page = Page()

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.page.samples:  # of a run that is resumed, which had another folder
            self._write(trainer)

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        step, rollouts = self.team.rollout_step, self.team.rollouts
        if not trainer.is_global_zero or not self.every_n_steps or (step - 1) % self.every_n_steps:
            return
        draw = self.data.environment.draw
        for task in list(dict.fromkeys(r.task for r in rollouts))[: self.num_tasks]:
            shown = [plain(r, draw) for r in rollouts if r.task == task]
            self.page.add(step, shown)
            self._trace(trainer, step, shown)
        self._write(trainer)

    def _trace(self, trainer: L.Trainer, step: int, shown: Sequence[dict[str, Any]]) -> None:
        for logger in (x for x in trainer.loggers if isinstance(x, MLflowTracker)):
            for rollout in shown:
                logger.log_trace(
                    f"{rollout['task']} step {step}", spans(rollout, step, time.time())
                )

    @rank_zero_only
    def _write(self, trainer: L.Trainer) -> None:
        path = self.team.run_dir / "rollouts.html"
        self.page.write(path)
        for logger in trainer.loggers:
            if isinstance(logger, MLflowTracker):
                logger.log_file(path)

    def state_dict(self) -> dict[str, Any]:
        return {"samples": self.page.samples}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.page.samples = list(state_dict["samples"])


def spans(rollout: dict[str, Any], step: int, started: float) -> Span:
    """A rollout as a tree of spans: below it its turns, below each the agents that were asked.

    Args:
        rollout: Made `plain`.
        step: At which rollout step it was sampled.
        started: When, in seconds since 1970. Of its parts the record has no times.
    """
    turns, pending = [], [(1, rollout["turn"])] if rollout["turn"] else []
    while pending:
        nth, turn = pending.pop()
        asked = [
            Span(
                name=group["agent"],
                inputs={"prompt": group["prompt"]},
                outputs=group["candidates"],
                attributes={name: group[name] for name in ("policy", "turn", "node")},
                started=started,
            )
            for group in turn["groups"]
        ]
        joints = [{k: v for k, v in j.items() if k != "opens"} for j in turn["joints"]]
        node = turn["groups"][0]["node"]
        turns.append(
            Span(
                name=f"turn {nth}" + (f" of branch {node}" if node else ""),
                inputs={"state": turn["state"]},
                outputs=joints,
                attributes={"error": turn["error"]} if turn["error"] else {},
                children=asked,
                started=started,
            )
        )
        pending += [(nth + 1, j["opens"]) for j in reversed(turn["joints"]) if j["opens"]]
    return Span(
        name="rollout",
        inputs={"task": rollout["task"]},
        outputs={name: rollout[name] for name in ("success", "return", "levels", "error")},
        attributes={"step": step, "episode": rollout["episode"]},
        children=turns,
        started=started,
    )


class RolloutWriter(TeamCallback):
    """`predict` writes every rollout as a line of `<run folder>/rollouts.jsonl`."""

    def on_predict_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        draw = self.data.environment.draw
        parts = ranks.gathered([plain(rollout, draw) for rollout in self.team.rollouts])
        if trainer.is_global_zero:
            with (self.team.run_dir / "rollouts.jsonl").open("a", encoding="utf-8") as file:
                for line in (line for part in parts for line in part):
                    file.write(json.dumps(line) + "\n")

    def on_predict_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.team.print(f"files: {self.team.run_dir / 'rollouts.jsonl'}")
