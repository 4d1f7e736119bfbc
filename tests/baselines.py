"""An algorithm that remembers: what a user who needs one writes."""

from collections.abc import Sequence
from typing import Any

from teamtune.algorithms import ATGRPO
from teamtune.experience import Rollout


class RunningMean(ATGRPO):
    """Compares every reward with the mean of all rewards of the steps before."""

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.total, self.count = 0.0, 0

    def assign_credit(self, rollouts: Sequence[Rollout]) -> None:
        mean = self.total / self.count if self.count else 0.0
        for candidate in (c for rollout in rollouts for c in rollout.candidates):
            reward = candidate.reward
            candidate.advantage = 0.0 if reward is None else reward - mean
            if reward is not None:
                self.total, self.count = self.total + reward, self.count + 1

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total, "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.total, self.count = state["total"], state["count"]
