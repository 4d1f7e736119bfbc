"""Where tasks come from: indexed sources, so that a step's tasks follow from its number."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any

from teamtune.errors import ConfigError
from teamtune.ranges import PositiveInt
from teamtune.tasks.task import Task

_ATTEMPTS = 1000


def fingerprint(task: Task) -> str:
    """A digest of a task's data: equal for equal problems, whatever their ids."""
    data = json.dumps(dict(task.data), sort_keys=True, default=str)
    return hashlib.blake2b(data.encode(), digest_size=16).hexdigest()


class TaskSource(ABC):
    """An indexed, possibly endless sequence of tasks."""

    count: int | None
    """How many tasks there are; None for endless."""

    @abstractmethod
    def take(self, env: object, start: int, n: int, exclude: Collection[str] = ()) -> list[Task]:
        """`n` tasks from index `start` on (modulo `count`), no fingerprint in `exclude`."""

    def check(self, env: object) -> None:
        """Raises ConfigError where `env` cannot start from a task, if that can be told at once."""

    @abstractmethod
    def overlap(self, other: "TaskSource") -> str | None:
        """What the two sources share, in words, or None."""


class GeneratedTasks(TaskSource):
    """Instances that the environment makes from consecutive seeds."""

    def __init__(self, first_seed: int, count: PositiveInt | None = None):
        """
        Args:
            first_seed: Seed of the first instance; the next ones follow it.
            count: Number of instances; None is endless.
        """
        self.first_seed = first_seed
        self.count = count

    def take(self, env: object, start: int, n: int, exclude: Collection[str] = ()) -> list[Task]:
        if self.count is not None and n > self.count:
            raise ConfigError(f"{n} tasks are asked for at once, and count is {self.count}")
        tasks = []
        for index in range(start, start + n):
            seed = self.first_seed + (index % self.count if self.count else index)
            task = self.make(env, seed)
            for _ in range(_ATTEMPTS):
                if fingerprint(task) not in exclude:
                    break
                seed += 1_000_000_007  # far beyond the indices of a run
                task = self.make(env, seed)
            else:
                raise ConfigError(f"the last {_ATTEMPTS} tasks that were made are all held out")
            tasks.append(task)
        return tasks

    def check(self, env: object) -> None:
        if not hasattr(env, "task"):
            raise ConfigError(f"{type(env).__name__} makes no instances; give tasks from a file")

    def make(self, env: Any, seed: int) -> Task:
        """The instance of one seed; subclasses may choose among an environment's kinds."""
        return env.task(seed)

    def overlap(self, other: TaskSource) -> str | None:
        if not isinstance(other, GeneratedTasks):
            return None
        low = max(self.first_seed, other.first_seed)
        high = min(self._end, other._end)
        if low >= high:
            return None
        return f"seeds from {low}" + (f" to {int(high) - 1}" if high != float("inf") else " on")

    @property
    def _end(self) -> float:
        return float("inf") if self.count is None else self.first_seed + self.count
