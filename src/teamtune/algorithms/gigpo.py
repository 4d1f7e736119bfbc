"""GiGPO (arXiv 2505.10978): episodes compared as in GRPO, and steps from the same state besides."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from teamtune.algorithms.credit import discounted_returns, group_advantages
from teamtune.algorithms.grpo import GRPO
from teamtune.experience import Candidate, Rollout
from teamtune.ranges import NonNegative, Share

Anchor = tuple[str, tuple[int, ...]]
"""An agent and the ids of its prompt."""


class GiGPO(GRPO):
    """A = A(episode) + omega * A(step), the latter among an agent's answers to one prompt.

    Answers that one agent gave to the identical prompt, in whatever turn and episode of a task, are
    compared by what they and the steps after them earned.
    """

    def __init__(self, omega: NonNegative = 1.0, gamma: Share = 0.95, **options: Any):
        """
        Args:
            omega: Weight of the comparison of steps; 0 is GRPO.
            gamma: Discount per step of what a step earned later.
        """
        super().__init__(**options)
        self.omega = omega
        self.gamma = gamma

    def refine(self, episodes: Sequence[Rollout]) -> None:
        anchors: dict[Anchor, list[tuple[Candidate, float]]] = defaultdict(list)
        for rollout in episodes:
            turns = [] if rollout.error else rollout.turns
            earned = discounted_returns([t.carried[0].progress for t in turns], self.gamma)
            for turn, return_ in zip(turns, earned):
                for group in turn.groups:
                    anchor = (group.key.agent, group.prompt_ids)
                    anchors[anchor].append((group.candidates[0], return_))
        for steps in anchors.values():
            returns = [return_ for _, return_ in steps]
            advantages = group_advantages(returns, self.scale, self.baseline).tolist()
            for (candidate, _), advantage in zip(steps, advantages):
                assert isinstance(candidate.advantage, float)
                candidate.advantage += self.omega * advantage
