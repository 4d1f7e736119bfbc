"""Code: one agent writes a program, the other a test of it; both see where the two differ."""

from teamtune.envs.code.environment import Code
from teamtune.envs.code.tasks import CodeTasks

__all__ = ["Code", "CodeTasks"]
