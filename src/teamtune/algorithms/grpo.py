"""GRPO over trajectories (arXiv 2402.03300): whole episodes of a task compared by their returns.

With one agent it is the papers' single-agent baseline, with several their multi-agent one: every
token of an episode, whoever sampled it, gets the episode's advantage.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, Literal

from teamtune.algorithms.algorithm import OnEpisodes
from teamtune.algorithms.credit import Scale, group_advantages
from teamtune.algorithms.policy_gradient import Clipped
from teamtune.experience import Group, Rollout


class GRPO(Clipped, OnEpisodes):
    """K episodes per task; a policy's loss is its token mean per episode, then a mean of episodes.

    An episode that broke off is compared with nothing and trains nothing.
    """

    def __init__(
        self,
        baseline: Literal["mean", "leave_one_out"] = "mean",
        scale: Scale = "std",
        **options: Any,
    ):
        """
        Args:
            baseline: What a return is compared with: the `mean` of the task's episodes, or of the
                others (`leave_one_out`, RLOO).
            scale: `std` divides by the standard deviation of the task's returns; `none` does not
                (Dr. GRPO).
        """
        super().__init__(**options)
        self.baseline: Literal["mean", "leave_one_out"] = baseline
        self.scale: Scale = scale

    def assign_credit(self, rollouts: Sequence[Rollout]) -> None:
        episodes: dict[str, list[Rollout]] = defaultdict(list)
        for rollout in rollouts:
            episodes[rollout.task].append(rollout)
        for own in episodes.values():
            returns = [None if r.error else r.return_ for r in own]
            advantages = group_advantages(returns, self.scale, self.baseline).tolist()
            for rollout, return_, advantage in zip(own, returns, advantages):
                for candidate in rollout.candidates:
                    candidate.return_, candidate.advantage = return_, advantage
            self.refine(own)
        for rollout in rollouts:
            self._weigh(rollout)

    def refine(self, episodes: Sequence[Rollout]) -> None:
        """What a variant adds to the advantages of one task's episodes."""

    def _weigh(self, rollout: Rollout) -> None:
        """A token's share in its policy's mean of the episode; 0 where it would change nothing."""
        tokens: Counter[str] = Counter()
        for group in rollout.groups:
            tokens[group.policy] += sum(len(c.token_ids) for c in group.candidates)
        for group in rollout.groups:
            for c in group.candidates:
                c.weight = 1 / tokens[group.policy] if c.credited else 0.0

    def trainable(self, groups: Sequence[Group]) -> list[Group]:
        return [g for g in groups if any(c.return_ is not None for c in g.candidates)]

    def denominator(self, groups: Sequence[Group]) -> float:
        """Episodes: each counts as much, however many turns it has."""
        return float(len({(group.key.task, group.key.node) for group in groups}))
