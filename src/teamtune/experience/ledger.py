"""The ledger: what rollouts tell, in training and in evaluation alike.

It adds up over batches and ranks: outcome, rewards per agent, failures, lengths, the levels of a
joint reward, pass@k and what generating took.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from teamtune import ranks
from teamtune.envs import Environment, TeamWork
from teamtune.experience.metrics import GenerationCost, JointReturn, PassAtK, SuccessRate
from teamtune.experience.records import Group, Rollout, count_tokens

Sums = Mapping[str, tuple[float, int]]


class Ledger(nn.Module):
    """Books rollouts under `<prefix>/`. A module, for its metrics talk to other ranks' devices."""

    def __init__(
        self, prefix: str, env: Environment[Any], samples: int = 0, outcome: str = "success"
    ):
        """
        Args:
            prefix: What all names begin with.
            env: Whose rewards may have levels.
            samples: For pass@k with k up to this; 0 for none.
            outcome: What the rollouts' success is called.
        """
        super().__init__()
        self.prefix = prefix
        self.outcome = outcome
        self.success = SuccessRate()
        self.cost = GenerationCost()
        self.levels = JointReturn(env.maxima, env.shares) if isinstance(env, TeamWork) else None
        self.passes = PassAtK(range(1, samples + 1)) if samples else None
        self._sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0])
        self.reasons: set[str] = set()
        """Why candidates failed, here; since the last `close`."""

    def book(self, rollouts: Sequence[Rollout], seconds: float) -> None:
        """Adds rollouts, and the seconds that they took.

        A task with a prompt too long for the engine's context is `too_long`; what was asked with
        that prompt, or at once with it, has not `failed`. Rewards of unjudged steps are left out.
        An episode that broke off has earned 0 at every level.
        """
        self.success.update([rollout.success for rollout in rollouts])
        self.cost.update(count_tokens(rollouts), seconds, len({r.task for r in rollouts}))
        if self.levels is not None:
            nothing = dict.fromkeys(self.levels.maxima, 0.0)
            self.levels.update([rollout.levels or nothing for rollout in rollouts])
        for rollout in rollouts:
            self._add("return", rollout.return_)
            self._add("broken_off", rollout.error is not None)
            self._add("too_long", rollout.too_long)
            self._book_groups(rollout.groups)

    def book_samples(self, rollouts: Sequence[Rollout]) -> None:
        """Adds sampled episodes, all of a task's, for pass@k; of the rest only failures."""
        assert self.passes is not None
        of_task: dict[str, list[bool]] = defaultdict(list)
        for rollout in rollouts:
            of_task[rollout.task].append(rollout.success)
            self._book_failures(rollout.groups)
        self.passes.update(list(of_task.values()))

    def _book_groups(self, groups: Sequence[Group]) -> None:
        self._book_failures(groups)
        for group in groups:
            agent = group.key.agent
            self._add(f"{agent}/spread", group.spread)
            for c in group.candidates:
                for reason in ("stop", "length"):
                    self._add(f"stop_{reason}", c.completion.stop_reason == reason)
                self._add("completion_tokens", len(c.token_ids))
                if c.score is not None:
                    self._add(f"{agent}/malformed", c.score.malformed)
                    if c.score.judged:
                        self._add(f"{agent}/reward_local", c.score.local)
                        self._add(f"{agent}/reward_team", c.score.team)

    def _book_failures(self, groups: Sequence[Group]) -> None:
        for c in (c for group in groups for c in group.candidates):
            self._add("failed", c.status == "failed")
            if c.status == "failed":
                self.reasons.add(c.reason or c.completion.stop_reason)

    def _add(self, name: str, value: float) -> None:
        entry = self._sums[name]
        entry[0] += value
        entry[1] += 1

    def close(self) -> dict[str, float]:
        """Means over all ranks of what was booked since the last time; all ranks must call."""
        sums = {name: (value, int(count)) for name, (value, count) in self._sums.items()}
        found = merged(ranks.gathered(sums))
        for metric in (self.success, self.cost, self.levels, self.passes):
            if metric is not None:
                found |= metric.compute()
                metric.reset()
        self._sums.clear()
        self.reasons = set()
        for name in [n for n in found if n == "success" or n.startswith("success_")]:
            found[name.replace("success", self.outcome)] = found.pop(name)
        return {f"{self.prefix}/{name}": value for name, value in found.items()}


def merged(parts: Sequence[Sums]) -> dict[str, float]:
    """Means over all ranks' sums; a name that some ranks lack is a mean over the others."""
    total: dict[str, tuple[float, int]] = {}
    for part in parts:
        for name, (value, count) in part.items():
            old = total.get(name, (0.0, 0))
            total[name] = (old[0] + value, old[1] + count)
    return {name: value / count for name, (value, count) in sorted(total.items()) if count}
