"""Math: one agent derives an answer, the other writes a program that prints one."""

from teamtune.envs.math.environment import Math
from teamtune.envs.math.tasks import MathTasks
from teamtune.envs.math.verifier import Verifier

__all__ = ["Math", "MathTasks", "Verifier"]
