"""Task sources and the data module: disjoint, indexed, shared out among ranks."""

import pytest

from teamtune import ranks
from teamtune.envs import PlanPath
from teamtune.errors import ConfigError
from teamtune.tasks import GeneratedTasks, Task, fingerprint
from teamtune.training.data import TaskDataModule


def small(**changes):
    env = PlanPath(2, 0.3, 4, "proposer", "chat")  # so few boards that repeats are certain
    settings = {"tasks_per_step": 6, "val_batch_tasks": 4, **changes}
    return TaskDataModule(env, GeneratedTasks(1000), GeneratedTasks(0, 10), **settings)


def test_tasks_are_read_only_and_picklable():
    import pickle

    task = Task("a", {"grid": ["."]})
    with pytest.raises(TypeError):
        task.data["grid"] = []
    with pytest.raises(AttributeError):
        task.id = "b"
    assert pickle.loads(pickle.dumps(task)) == task
    assert len({task, Task("a", {"grid": ["."]})}) == 1


def test_equal_data_have_equal_fingerprints_whatever_their_ids():
    assert fingerprint(Task("a", {"x": 1, "y": (2, 3)})) == fingerprint(
        Task("b", {"y": [2, 3], "x": 1})
    )
    assert fingerprint(Task("a", {"x": 1})) != fingerprint(Task("a", {"x": 2}))


def test_an_index_gives_the_same_task_whatever_was_taken_before():
    env, source = PlanPath(5, 0.2, 4, "proposer"), GeneratedTasks(100)
    assert source.take(env, 3, 4) == source.take(env, 0, 7)[3:]


def test_a_finite_source_starts_over():
    env, source = PlanPath(5, 0.2, 4, "proposer"), GeneratedTasks(100, count=3)
    assert source.take(env, 2, 3) == [env.task(102), env.task(100), env.task(101)]


@pytest.mark.parametrize(
    ("train", "val", "shared"),
    [
        ((0, None), (5, 10), "seeds from 5 to 14"),
        ((0, 10), (9, 1), "seeds from 9 to 9"),
        ((10, None), (0, 10), None),
        ((0, 10), (10, 10), None),
    ],
)
def test_overlapping_seeds_are_told(train, val, shared):
    assert GeneratedTasks(*train).overlap(GeneratedTasks(*val)) == shared


def test_overlap_of_training_and_evaluation_is_refused():
    env = PlanPath(5, 0.2, 4, "proposer")
    with pytest.raises(ConfigError, match="data.val overlaps data.train: seeds from 5"):
        TaskDataModule(env, GeneratedTasks(5), GeneratedTasks(0, 10))
    with pytest.raises(ConfigError, match="count"):
        TaskDataModule(env, GeneratedTasks(5), GeneratedTasks(0))


def test_no_held_out_board_is_trained_on_even_under_another_seed():
    data = small()
    held_out = {fingerprint(t) for t in data.held_out}
    plain = GeneratedTasks(1000).take(data.environment, 0, 60)
    assert held_out & {fingerprint(t) for t in plain}  # without the check it would happen
    trained = [t for step in range(10) for t in data.step_tasks(step)]
    assert not held_out & {fingerprint(t) for t in trained}


def test_steps_take_consecutive_tasks():
    data = small()
    assert data.step_tasks(0) + data.step_tasks(1) == data.training_tasks(0, 12)


def test_ranks_share_tasks_without_overlap(monkeypatch):
    whole = small().step_tasks(2)
    held_out = [t for batch in small().val_dataloader() for t in batch]
    parts, val_parts = [], []
    monkeypatch.setattr(ranks, "world_size", lambda: 4)
    for rank in range(4):
        monkeypatch.setattr(ranks, "rank", lambda rank=rank: rank)
        parts += small().step_tasks(2)
        val_parts += [t for batch in small().val_dataloader() for t in batch]
    assert sorted(t.id for t in parts) == sorted(t.id for t in whole)
    assert sorted(t.id for t in val_parts) == sorted(t.id for t in held_out)


def test_a_step_never_holds_a_task_twice():
    environment = PlanPath(4)
    assert len(GeneratedTasks(0, count=3).take(environment, 1, 3)) == 3
    with pytest.raises(ConfigError, match="4 tasks are asked for at once, and count is 3"):
        GeneratedTasks(0, count=3).take(environment, 0, 4)


def test_a_source_whose_tasks_are_all_held_out_ends():
    environment = PlanPath(2, obstacle_probability=0.0)
    every = {fingerprint(environment.task(seed)) for seed in range(500)}
    with pytest.raises(ConfigError, match="the last 1000 tasks that were made are all held out"):
        GeneratedTasks(0).take(environment, 0, 1, every)
