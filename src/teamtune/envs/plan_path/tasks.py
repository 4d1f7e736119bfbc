"""Training boards of Plan-Path with more detours than chance would give."""

import random

from teamtune.envs.plan_path.environment import PlanPath
from teamtune.ranges import PositiveInt, Share
from teamtune.tasks import GeneratedTasks, Task


class DetourTasks(GeneratedTasks):
    """Generated boards, a share of which has no straight way from start to goal."""

    def __init__(
        self, first_seed: int, count: PositiveInt | None = None, detour_share: Share = 0.5
    ):
        """
        Args:
            first_seed: Seed of the first board; the next ones follow it.
            count: Number of boards; null is endless.
            detour_share: Share of boards that are drawn among those with a detour.
        """
        super().__init__(first_seed, count)
        self.detour_share = detour_share

    def make(self, env: PlanPath, seed: int) -> Task:
        return env.task(seed, detour=random.Random(f"detour/{seed}").random() < self.detour_share)
