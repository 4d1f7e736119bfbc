"""Checkpoint files: written through, and whole or not there."""

import tracemalloc

import lightning as L
import pytest
import torch

from teamtune.algorithms import ATGRPO
from teamtune.callbacks.checkpoint import StreamedCheckpointIO, TeamCheckpoint
from teamtune.envs import PlanPath
from teamtune.policies import Policy
from teamtune.tasks import GeneratedTasks
from teamtune.training import TeamModule
from teamtune.training.data import TaskDataModule


def test_the_file_holds_the_checkpoint_and_nothing_lies_beside_it(tmp_path):
    path = tmp_path / "checkpoints" / "step.ckpt"
    StreamedCheckpointIO().save_checkpoint({"weight": torch.arange(3)}, path)
    assert torch.load(path)["weight"].tolist() == [0, 1, 2]
    assert [entry.name for entry in path.parent.iterdir()] == ["step.ckpt"]


def test_memory_does_not_hold_a_second_checkpoint(tmp_path):
    size = 2**24
    checkpoint = {"weight": torch.zeros(size, dtype=torch.uint8)}
    tracemalloc.start()
    StreamedCheckpointIO().save_checkpoint(checkpoint, tmp_path / "step.ckpt")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < size / 8
    assert (tmp_path / "step.ckpt").stat().st_size > size


def test_a_write_that_fails_leaves_the_earlier_file(tmp_path):
    path = tmp_path / "step.ckpt"
    StreamedCheckpointIO().save_checkpoint({"weight": torch.ones(1)}, path)
    with pytest.raises(AttributeError):
        StreamedCheckpointIO().save_checkpoint({"weight": torch.zeros(1), "bad": lambda: 0}, path)
    assert torch.load(path)["weight"].item() == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["step.ckpt"]


def test_it_takes_the_place_of_lightnings_own_and_of_no_other():
    class Mine(StreamedCheckpointIO):
        pass

    trainers = [L.Trainer(logger=False, accelerator="cpu", plugins=p) for p in (None, [Mine()])]
    env = PlanPath(size=4, first_role="none")
    data = TaskDataModule(env, GeneratedTasks(10**6), GeneratedTasks(0, 1))
    team = TeamModule({"a": Policy("model")}, {"planner": "a"}, ATGRPO())
    for trainer in trainers:
        trainer.datamodule = data
        TeamCheckpoint().setup(trainer, team, "fit")
    kinds = [type(trainer.strategy.checkpoint_io) for trainer in trainers]
    assert kinds == [StreamedCheckpointIO, Mine]
