"""The update between two rollouts: every policy's optimizer is stepped on its own experience.

Denominators are counted over the whole optimizer step, across micro-batches and ranks, so the
gradient depends on neither; ranks run equally many micro-batches, for sharded modules talk in each.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from teamtune import ranks
from teamtune.algorithms import Algorithm, TokenBatch
from teamtune.experience import Group
from teamtune.experience.packing import PackedBatch, pack, placeholder, sampled_candidates
from teamtune.policies import Policy

if TYPE_CHECKING:
    from torch.optim import Optimizer

Experience = Mapping[str, Sequence[Group]]
"""This rank's groups by policy."""
TINY = 1e-30
BY_WEIGHT = ("clip_frac", "mismatch_frac")
"""Shares of the policy loss; the others are shares of tokens."""


@dataclass(frozen=True)
class Totals:
    """Of an optimizer step, over all ranks: what its sums are divided by."""

    denominator: float
    """Of the policy loss; 1 where nothing is in it."""
    weight: float
    tokens: float
    """Those that are packed, so 0 where there is no step: all sampled ones where the algorithm
    regularizes."""
    sampled_entropy: float

    def counted(self, name: str) -> float:
        """What makes a mean of a sum."""
        if name == "loss":
            return 1.0
        return max(self.weight, TINY) if name in BY_WEIGHT else self.tokens


@dataclass(frozen=True)
class Batches:
    """A rank's share of an optimizer step."""

    batches: list[PackedBatch]
    denominator: float
    sampled: int
    """Tokens of all scored candidates, packed or not."""
    surprise: float
    """Sum of their -sampling_logprobs, in nats."""

    def totals(self, device: torch.device) -> Totals:
        """All ranks' together; they all must call."""
        weight = float(sum(b.weight.sum() for b in self.batches))
        tokens = float(sum(b.count.sum() for b in self.batches))
        own = [self.denominator, weight, tokens, self.sampled, self.surprise]
        summed = ranks.summed(torch.tensor(own, dtype=torch.float64, device=device)).tolist()
        denominator, weight, tokens, sampled, surprise = summed
        return Totals(denominator or 1.0, weight, tokens, surprise / (sampled or 1.0))


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
        self._mismatch: dict[int, Tensor] = {}
        """Trainer minus engine by answer, from the first pass over it."""

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
        self._mismatch.clear()
        kept = {name: self.algorithm.trainable(experience.get(name, ())) for name in policies}
        for epoch in range(self.epochs):
            for part in self._minibatches(experience, seed + epoch):
                for name, policy in policies.items():
                    batches = self._pack(policy, experience.get(name, ()), kept[name], part)
                    step = self._step(policy, optimizers[name], batches, temperature, device)
                    for key, value in step.items():
                        metrics.setdefault(f"{name}/{key}", []).append(value)
        for name in policies:
            weighty = [g for g in kept[name] if any(c.credited for c in g.candidates)]
            given, used = len(experience.get(name, ())), len(weighty)
            counts = ranks.summed(torch.tensor([given, used], device=device))
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

    def _pack(
        self, policy: Policy, groups: Sequence[Group], kept: Sequence[Group], tasks: set[str]
    ) -> Batches:
        """What this rank has to compute for one optimizer step."""
        own = [g for g in groups if g.key.task in tasks]
        learned = [g for g in kept if g.key.task in tasks]
        idle = None
        if self.algorithm.regularizes:
            known = {id(g) for g in learned}
            idle = [g for g in own if id(g) not in known]
        sampled = [c for g in own for c in sampled_candidates(g)]
        return Batches(
            pack(learned, policy.token_budget, idle),
            self.algorithm.denominator(learned),
            sum(len(c.token_ids) for c in sampled),
            -math.fsum(x for c in sampled for x in c.sampling_logprobs),
        )

    def _step(
        self,
        policy: Policy,
        optimizer: "Optimizer",
        own: Batches,
        temperature: float,
        device: torch.device,
    ) -> dict[str, float]:
        """One optimizer step; nothing, and no metrics, where no rank has anything to learn from."""
        totals = own.totals(device)
        count = int(ranks.largest(len(own.batches), device))
        if count == 0:
            return {}
        batches = own.batches + [placeholder() for _ in range(count - len(own.batches))]
        sums: dict[str, Tensor] = {}
        for batch in batches:
            for key, value in self._backward(policy, batch.to(device), temperature, totals):
                sums[key] = sums.get(key, 0.0) + value
        names = sorted(sums)
        reduced = ranks.summed(torch.stack([sums[k].double() for k in names])).tolist()
        metrics = {k: v / totals.counted(k) for k, v in zip(names, reduced)}
        norm = torch.nn.utils.clip_grad_norm_(policy.trainable_parameters(), policy.max_grad_norm)
        if isinstance(norm, DTensor):
            norm = norm.full_tensor()
        metrics |= {"grad_norm": float(norm), "tokens": totals.tokens}
        for key in ("loss", "grad_norm"):  # sums over ranks, so that all of them stop
            if not math.isfinite(metrics[key]):
                raise FloatingPointError(f"{key} is {metrics[key]}; no step was taken")
        optimizer.step()
        torch.clear_autocast_cache()  # its copies are of the weights before the step
        optimizer.zero_grad()  # no gradient takes memory while others step, or during rollouts
        policy.version += 1
        return metrics

    def _backward(
        self, policy: Policy, batch: PackedBatch, temperature: float, totals: Totals
    ) -> list[tuple[str, Tensor]]:
        """Adds a micro-batch's gradient and returns sums over its tokens.

        Sharding averages gradients over ranks; the factor `world_size` makes that a sum.
        """
        algorithm = self.algorithm
        reference = None
        if algorithm.needs_reference:
            reference = policy.reference_logprobs(batch, temperature)
        logprobs, entropy = policy(batch, temperature, algorithm.entropy_coef > 0)
        gap = logprobs.detach() - batch.sampling_logprobs
        view = TokenBatch(
            logprobs=logprobs,
            sampling_logprobs=batch.sampling_logprobs,
            advantages=batch.advantages,
            weight=batch.weight,
            count=batch.count,
            sequence=batch.sequence,
            entropy=entropy,
            ref_logprobs=reference,
            sampled_entropy=totals.sampled_entropy,
            mismatch=self._at_first(batch, gap),
        )
        loss, sums = algorithm.loss(view)
        added, more = algorithm.regularizer(view)
        loss = loss / totals.denominator + added / totals.tokens
        (loss * ranks.world_size()).backward()
        return [
            ("loss", loss.detach()),
            ("entropy", view.total(entropy.detach())),
            ("approx_kl", view.total(gap.exp() - 1 - gap)),
            ("sampling_gap", view.total(gap.abs())),
            *sums.items(),
            *more.items(),
        ]

    def _at_first(self, batch: PackedBatch, gap: Tensor) -> Tensor:
        """[N] what `gap` was when this update first scored each token, perhaps just now."""
        parts = gap.split([len(c.token_ids) for c in batch.answers])
        known = self._mismatch
        return torch.cat([known.setdefault(id(c), p) for c, p in zip(batch.answers, parts)])
