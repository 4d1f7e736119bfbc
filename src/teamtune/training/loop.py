"""The update between two rollouts: every policy's optimizer is stepped on its own experience.

Denominators are counted over the whole optimizer step, across micro-batches and ranks, so the
gradient depends on neither; ranks run equally many micro-batches, for sharded modules talk in each.
"""

import math
import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from teamtune import ranks
from teamtune.algorithms import Algorithm, TokenBatch
from teamtune.experience import Group
from teamtune.experience.packing import PackedBatch, pack, packed_candidates, placeholder
from teamtune.policies import Policy

if TYPE_CHECKING:
    from torch.optim import Optimizer

Experience = Mapping[str, Sequence[Group]]
"""This rank's groups by policy."""


class MultiOptimizerLoop:
    """Epochs and minibatches over one rollout's experience; within each, policy after policy."""

    def __init__(self, algorithm: Algorithm, epochs: int = 1, minibatch_tasks: int | None = None):
        """
        Args:
            algorithm: Gives loss and denominators.
            epochs: How often the experience is used.
            minibatch_tasks: Tasks per optimizer step; None takes all.
        """
        self.algorithm = algorithm
        self.epochs = epochs
        self.minibatch_tasks = minibatch_tasks

    def run(
        self,
        policies: Mapping[str, Policy],
        optimizers: Mapping[str, "Optimizer"],
        experience: Experience,
        temperature: float,
        seed: int,
        device: torch.device,
    ) -> dict[str, float]:
        """Steps the optimizers; returns metrics `<policy>/<name>`, equal on all ranks.

        Raises:
            FloatingPointError: A loss or a gradient is not finite.
        """
        metrics: dict[str, list[float]] = {}
        kept = {name: self.algorithm.trainable(groups) for name, groups in experience.items()}
        for epoch in range(self.epochs):
            for part in self._minibatches(experience, seed + epoch):
                for name, policy in policies.items():
                    groups = [g for g in kept.get(name, ()) if g.key.task in part]
                    step = self._step(policy, optimizers[name], groups, temperature, device)
                    for key, value in step.items():
                        metrics.setdefault(f"{name}/{key}", []).append(value)
        for name in policies:
            weighty = [
                g for g in kept.get(name, ()) if any(c.weight and c.credited for c in g.candidates)
            ]
            given, used = len(experience.get(name, ())), len(weighty)
            counts = ranks.summed(torch.tensor([given, used], dtype=torch.float64, device=device))
            share = 1 - float(counts[1]) / float(counts[0]) if counts[0] else 0.0
            metrics[f"{name}/flat_groups"] = [share]
        return {key: sum(values) / len(values) for key, values in metrics.items()}

    def _minibatches(self, experience: Experience, seed: int) -> list[set[str]]:
        """Sets of task ids, the same on all ranks and for any number of them."""
        own = {g.key.task for groups in experience.values() for g in groups}
        tasks = sorted(set().union(*ranks.gathered(own)))
        if self.minibatch_tasks is None:
            return [set(tasks)]
        random.Random(seed).shuffle(tasks)
        size = self.minibatch_tasks
        return [set(tasks[i : i + size]) for i in range(0, len(tasks), size)]

    def _step(
        self,
        policy: Policy,
        optimizer: "Optimizer",
        groups: Sequence[Group],
        temperature: float,
        device: torch.device,
    ) -> dict[str, float]:
        """One optimizer step; nothing, and no metrics, where no rank has anything to learn from."""
        batches = pack(groups, policy.token_budget)
        local = [
            self.algorithm.denominator(groups),
            float(sum(b.weight.sum() for b in batches)),
            -float(sum((b.weight * b.sampling_logprobs).sum() for b in batches)),
            float(sum(len(c.token_ids) for g in groups for c in packed_candidates(g))),
        ]
        totals = ranks.summed(torch.tensor(local, dtype=torch.float64, device=device)).tolist()
        denominator, weight, surprise, tokens = totals
        count = int(ranks.largest(len(batches), device))
        if count == 0:
            return {}
        batches += [placeholder() for _ in range(count - len(batches))]
        sums: dict[str, Tensor] = {}
        for batch in batches:
            parts = self._backward(
                policy, batch.to(device), temperature, denominator, surprise / weight
            )
            for key, value in parts:
                sums[key] = sums.get(key, 0.0) + value
        names = sorted(sums)
        reduced = ranks.summed(torch.stack([sums[k].double() for k in names])).tolist()
        metrics = {k: v / (denominator if k == "loss" else weight) for k, v in zip(names, reduced)}
        norm = torch.nn.utils.clip_grad_norm_(policy.trainable_parameters(), policy.max_grad_norm)
        if isinstance(norm, DTensor):
            norm = norm.full_tensor()
        metrics |= {"grad_norm": float(norm), "tokens": tokens}
        for key in ("loss", "grad_norm"):  # sums over ranks, so that all of them stop
            if not math.isfinite(metrics[key]):
                raise FloatingPointError(f"{key} is {metrics[key]}; no step was taken")
        optimizer.step()
        optimizer.zero_grad()  # no gradient takes memory while others step, or during rollouts
        policy.version += 1
        return metrics

    def _backward(
        self,
        policy: Policy,
        batch: PackedBatch,
        temperature: float,
        denominator: float,
        sampled_entropy: float,
    ) -> list[tuple[str, Tensor]]:
        """Adds a micro-batch's gradient and returns sums over its tokens.

        Sharding averages gradients over ranks; the factor `world_size` makes that a sum.
        """
        reference = None
        if self.algorithm.needs_reference:
            reference = policy.reference_logprobs(batch, temperature)
        with_entropy = self.algorithm.entropy_coef > 0
        logprobs, entropy = policy(batch, temperature, with_entropy)
        view = TokenBatch(
            logprobs=logprobs,
            sampling_logprobs=batch.sampling_logprobs,
            advantages=batch.advantages,
            weight=batch.weight,
            entropy=entropy,
            ref_logprobs=reference,
            sampled_entropy=sampled_entropy,
        )
        loss, sums = self.algorithm.loss(view)
        (loss * (ranks.world_size() / denominator)).backward()
        gap = logprobs.detach() - batch.sampling_logprobs
        return [
            ("loss", loss.detach()),
            ("entropy", view.sum(entropy.detach())),
            ("approx_kl", view.sum(gap.exp() - 1 - gap)),
            ("sampling_gap", view.sum(gap.abs())),
            *sums.items(),
        ]
