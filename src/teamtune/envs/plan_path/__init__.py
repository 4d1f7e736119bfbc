"""Plan-Path: find a way across a grid with obstacles."""

from teamtune.envs.plan_path.environment import PlanPath, PlanPathState
from teamtune.envs.plan_path.solver import NoisySolver
from teamtune.envs.plan_path.tasks import DetourTasks

__all__ = ["DetourTasks", "NoisySolver", "PlanPath", "PlanPathState"]
