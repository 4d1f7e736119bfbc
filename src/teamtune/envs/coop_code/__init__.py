"""Cooperative coding: one agent writes a helper, the other the function that should use it."""

from teamtune.envs.coop_code.environment import CoopCode
from teamtune.envs.coop_code.tasks import HumanEvalTasks

__all__ = ["CoopCode", "HumanEvalTasks"]
