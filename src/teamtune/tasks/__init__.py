"""What is to be solved."""

from teamtune.tasks.datasets import DatasetTasks
from teamtune.tasks.problems import ProblemTasks
from teamtune.tasks.sources import GeneratedTasks, TaskSource, fingerprint
from teamtune.tasks.task import Task

__all__ = ["DatasetTasks", "GeneratedTasks", "ProblemTasks", "Task", "TaskSource", "fingerprint"]
