"""What is to be solved."""

from teamtune.tasks.sources import GeneratedTasks, TaskSource, fingerprint
from teamtune.tasks.task import Task

__all__ = ["GeneratedTasks", "Task", "TaskSource", "fingerprint"]
