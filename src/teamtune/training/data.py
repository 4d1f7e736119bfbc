"""Tasks for training and evaluation, this rank's share of them.

One epoch is one rollout step, and its single batch is the step's list of tasks. They follow from
the step's number alone, so that resuming needs no memory of a loader.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import lightning as L

from teamtune import ranks
from teamtune.envs import Environment
from teamtune.errors import ConfigError
from teamtune.ranges import PositiveInt
from teamtune.tasks import Task, TaskSource, fingerprint


class TaskDataModule(L.LightningDataModule):
    """The environment, its training tasks and the tasks held out for evaluation."""

    def __init__(
        self,
        environment: Environment,
        train: TaskSource,
        val: TaskSource,
        tasks_per_step: PositiveInt = 128,
        val_batch_tasks: PositiveInt = 512,
    ):
        """
        Args:
            environment: The rules that the team plays by.
            train: Training tasks.
            val: Held-out tasks, never trained on: rows or seeds that training has as well are
                refused, and a generated instance that happens to equal one is left out of training.
            tasks_per_step: Tasks of one rollout step, over all ranks.
            val_batch_tasks: Tasks that are evaluated at once, per rank.

        Raises:
            ConfigError: Training and evaluation overlap, the environment cannot start from a task,
                or a value is out of its range.
        """
        super().__init__()
        if val.count is None:
            raise ConfigError("data.val.init_args.count: got null, allowed: a number of tasks")
        for name, source in (("train", train), ("val", val)):
            try:
                source.check(environment)
            except ConfigError as error:
                raise ConfigError(f"data.{name}: {error}") from error
        shared = train.overlap(val)
        if shared:
            raise ConfigError(
                f"data.val overlaps data.train: {shared}; evaluate on other tasks (another file, "
                "other rows or seeds)"
            )
        if train.count is not None and tasks_per_step > train.count:
            raise ConfigError(
                f"data.tasks_per_step: got {tasks_per_step}, allowed: at most {train.count}, the "
                "tasks of data.train"
            )
        self.environment = environment
        self.train, self.val = train, val
        self.tasks_per_step = tasks_per_step
        self.val_batch_tasks = val_batch_tasks
        self._held_out: list[Task] | None = None
        self._fingerprints: frozenset[str] = frozenset()

    @property
    def held_out(self) -> list[Task]:
        """All evaluation tasks, the same on every rank."""
        if self._held_out is None:
            assert self.val.count is not None
            self._held_out = self.val.take(self.environment, 0, self.val.count)
            self._fingerprints = frozenset(map(fingerprint, self._held_out))
        return self._held_out

    def training_tasks(self, start: int, count: int) -> list[Task]:
        """This rank's share of `count` training tasks from index `start` on."""
        assert self.held_out
        tasks = self.train.take(self.environment, start, count, self._fingerprints)
        return tasks[ranks.rank() :: ranks.world_size()]

    def step_tasks(self, rollout_step: int) -> list[Task]:
        """This rank's share of a rollout step's tasks."""
        return self.training_tasks(rollout_step * self.tasks_per_step, self.tasks_per_step)

    def train_dataloader(self) -> "TaskLoader":
        return TaskLoader(self._step_batches, 1)

    def val_dataloader(self) -> "TaskLoader":
        share = self.held_out[ranks.rank() :: ranks.world_size()]
        size = self.val_batch_tasks
        largest = -(-len(self.held_out) // ranks.world_size())
        # As many batches on every rank, empty ones if need be: Lightning runs no hooks without any.
        batches = [share[i : i + size] for i in range(0, largest, size)]
        return TaskLoader(lambda: batches, len(batches))

    test_dataloader = val_dataloader
    predict_dataloader = val_dataloader

    def _step_batches(self) -> list[list[Task]]:
        assert self.trainer is not None
        module: Any = self.trainer.lightning_module
        return [self.step_tasks(module.rollout_step)]

    def transfer_batch_to_device(self, batch: Any, device: Any, dataloader_idx: int) -> Any:
        return batch


class TaskLoader:
    """Lists of tasks, made anew at every pass; in training one list, that of the coming step."""

    def __init__(self, batches: Callable[[], Iterable[list[Task]]], length: int):
        self.batches, self.length = batches, length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[list[Task]]:
        return iter(self.batches())
