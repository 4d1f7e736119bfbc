"""Training boards of Plan-Path with more detours than chance would give."""

import random

from teamtune.envs.plan_path.environment import PlanPath
from teamtune.errors import ConfigError
from teamtune.tasks import GeneratedTasks, Task


class DetourTasks(GeneratedTasks):
    """Generated boards, a share of which has no straight way from start to goal."""

    def __init__(self, first_seed: int, count: int | None = None, detour_share: float = 0.5):
        """
        Args:
            first_seed: Seed of the first board; the next ones follow it.
            count: Number of boards; null is endless.
            detour_share: Share of boards that are drawn among those with a detour, 0 to 1.

        Raises:
            ConfigError: A value out of its range.
        """
        super().__init__(first_seed, count)
        if not 0 <= detour_share <= 1:
            raise ConfigError(f"detour_share: got {detour_share}, allowed: 0 to 1")
        self.detour_share = detour_share

    def make(self, env: PlanPath, seed: int) -> Task:
        return env.task(seed, detour=random.Random(f"detour/{seed}").random() < self.detour_share)
