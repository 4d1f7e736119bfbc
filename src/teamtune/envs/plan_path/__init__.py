"""Plan-Path: find a way across a grid with obstacles."""

from teamtune.envs.plan_path.environment import PlanPath, PlanPathState
from teamtune.envs.plan_path.solver import NoisySolver

__all__ = ["NoisySolver", "PlanPath", "PlanPathState"]
