"""Evaluation: whole episodes of the held-out tasks, greedy, and sampled ones for pass@k."""

import time
from collections.abc import Sequence
from typing import Any

import lightning as L

from teamtune import ranks
from teamtune.callbacks.base import TeamCallback
from teamtune.callbacks.failures import refuse_failures, refuse_too_long
from teamtune.experience import Rollout
from teamtune.experience.ledger import Ledger
from teamtune.inference import Sampling
from teamtune.rollout import Sampler, TrajectorySampler, collect
from teamtune.seeds import derive_seed
from teamtune.tasks import Task


class Evaluation(TeamCallback):
    """Plays the tasks of Lightning's validation, test and prediction loops."""

    ledger: Ledger
    transition_timeout: float | None = None

    def __init__(
        self, sampling: Sampling, turns: int | None, samples: int, max_failed: float
    ) -> None:
        self.sampling = sampling
        self.evaluation_turns = turns
        self.evaluation_samples = samples
        self.max_failed = max_failed
        self._seconds = 0.0

    def play(self, tasks: Sequence[Task], sampler: Sampler, seed: int) -> list[Rollout]:
        """Rollouts of `tasks` by the team's engines."""
        team = self.team
        session = team.session
        return collect(
            self.data.environment,
            tasks,
            sampler,
            session.engines,
            team.policy_map,
            seed,
            session.runner,
            self.transition_timeout,
        )

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.ledger = Ledger("val", self.data.environment, self.evaluation_samples)
        self.ledger.to(self.team.device)
        self._seconds = 0.0

    def on_validation_batch_start(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        batch: list[Task],
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        self.team.enter("evaluation")
        began = time.monotonic()
        turns = self.evaluation_turns or self.team.algorithm.sampler.max_turns
        seed = derive_seed(self.team.seed, "evaluation")
        rollouts = self.play(batch, TrajectorySampler(1, turns), seed)
        seconds = time.monotonic() - began
        self._seconds += seconds
        self.team.take(rollouts)
        self.ledger.book(rollouts, seconds)
        if self.evaluation_samples:
            sampler = TrajectorySampler(self.evaluation_samples, turns, self.sampling)
            self.ledger.book_samples(self.play(batch, sampler, derive_seed(seed, "samples")))

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        reasons = self.ledger.reasons
        metrics = self.ledger.close()
        metrics["time/evaluation"] = max(ranks.gathered(self._seconds))
        self.team.report(metrics)
        refuse_failures(metrics.get("val/failed", 0.0), self.max_failed, reasons)
        refuse_too_long(metrics.get("val/too_long", 0.0))

    def on_predict_batch_start(self, *args: Any, **kwargs: Any) -> None:
        self.on_validation_batch_start(*args, **kwargs)

    on_test_start = on_predict_start = on_validation_start
    on_test_batch_start = on_validation_batch_start
    on_test_epoch_end = on_validation_epoch_end
