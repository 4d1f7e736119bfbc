"""Weights go from each policy to its engine after every update, and a guard compares the two."""

import asyncio
import math
import random
import time
from dataclasses import dataclass
from typing import Any

import lightning as L
import torch

from teamtune import ranks
from teamtune.callbacks.base import TeamCallback
from teamtune.experience import Candidate, Group, GroupKey
from teamtune.experience.packing import pack
from teamtune.inference import Completion, RolloutEngine, Sampling
from teamtune.policies import Policy
from teamtune.ranges import NonNegativeInt, Positive
from teamtune.seeds import derive_seed
from teamtune.training import TeamModule

PROBE_LENGTH = 16
PROBE_SAMPLES = 4


class WeightSyncError(RuntimeError):
    """Engine and trainer disagree about the policy: rollouts would come from other weights."""


class WeightSync(TeamCallback):
    """Sends the weights of policies that stepped: before the first rollout, after each update."""

    def __init__(self, tolerance: Positive = 1e-3, probe_tokens: NonNegativeInt = 8):
        """
        Args:
            tolerance: Mean difference of a token's log-prob between engine and trainer that the
                guard accepts; 1e-3 suits float32 engines, 0.1 bfloat16 ones.
            probe_tokens: Length of the completion that is compared; 0 turns the guard off.
        """
        self.tolerance = tolerance
        self.probe_tokens = probe_tokens

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.sync(self.team)

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.sync(self.team)

    on_test_start = on_validation_start
    on_predict_start = on_validation_start

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        self.sync(self.team)

    def sync(self, team: TeamModule) -> None:
        """Loads what is newer than an engine's weights, and checks it. All ranks call it alike."""
        began = time.monotonic()
        told: dict[str, float] = {}
        for name, policy in team.trained().items():
            engine = team.engines[name]
            if engine.version == policy.version:
                continue
            engine.load_weights(policy.full_weights(), policy.version)
            if self.probe_tokens:
                found = self._guard(name, policy, engine, team)
                told |= {f"{name}/probe_mean": found.mean, f"{name}/probe_max": found.largest}
        team.report({"time/sync": time.monotonic() - began, **told})

    def _guard(
        self, name: str, policy: Policy, engine: RolloutEngine, team: TeamModule
    ) -> "Difference":
        session = team.session
        own = probe_difference(
            policy, engine, session.temperature, self.probe_tokens, team.device, session.runner
        )
        mean, largest = (ranks.largest(x, team.device) for x in (own.mean, own.largest))
        if not mean <= self.tolerance:
            raise WeightSyncError(
                f"policy {name!r}, version {policy.version}: engine and trainer log-probs differ "
                f"by {mean:.3g} (at most {largest:.3g}) on the probe, more than "
                f"weight_sync.tolerance = {self.tolerance:g}; the engine does not "
                "hold the policy's weights, or one of the two computes otherwise than the model"
            )
        return Difference(mean, largest)


@dataclass(frozen=True)
class Difference:
    """|log-prob(engine) - log-prob(trainer)| over the tokens of a probe, in nats.

    The mean tells wrong weights from rounding: the largest of a few dozen bfloat16 tokens is now
    and then as large as what a wrong tensor does to all of them.
    """

    mean: float
    largest: float


def probe_difference(
    policy: Policy,
    engine: RolloutEngine,
    temperature: float,
    num_tokens: int,
    device: torch.device,
    runner: asyncio.Runner | None = None,
) -> Difference:
    """Between the log-probs of engine and trainer for sampled completions; inf where none came.

    The engine draws a few completions of `num_tokens` tokens, or as many as its context has room
    for, after a prompt of random ids, which other than a sentence are many different ones in any
    vocabulary. All ranks must call.
    """
    assert policy.scorer is not None
    vocabulary = policy.scorer.lm.config.get_text_config().vocab_size
    seed = derive_seed("probe", policy.version)
    num_tokens = min(num_tokens, engine.context_length - 1)
    length = min(PROBE_LENGTH, engine.context_length - num_tokens)
    prompt_ids = random.Random(seed).choices(range(vocabulary), k=length)
    sampling = Sampling(temperature=temperature, max_tokens=num_tokens)

    async def ask() -> list[Completion]:
        return await engine.generate(prompt_ids, PROBE_SAMPLES, sampling, seed)

    answers = asyncio.run(ask()) if runner is None else runner.run(ask())
    drawn = [c for c in answers if c.token_ids]
    stand_in = Completion((0,), (0.0,), "", "failed", policy.version)
    candidates = [Candidate(c, "scored") for c in drawn or [stand_in]]
    probe = Group(GroupKey("probe", "probe", 0), "", "", tuple(prompt_ids), candidates)
    (batch,) = pack([probe], 1_000_000)
    with torch.no_grad():
        logprobs, _ = policy(batch.to(device), temperature)
    if not drawn:
        return Difference(math.inf, math.inf)
    gaps = (logprobs.cpu() - batch.sampling_logprobs).abs()
    gaps = gaps.nan_to_num(nan=math.inf, posinf=math.inf)
    return Difference(float(gaps.mean()), float(gaps.max()))
