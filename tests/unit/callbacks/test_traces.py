"""Samples of rollouts: which are shown, that a resumed run keeps them, and the tree of spans."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from games import POLICIES, Game, numbering, play
from teamtune.callbacks import RolloutTraces
from teamtune.callbacks.traces import spans
from teamtune.experience import Rollout
from teamtune.experience.plain import plain
from teamtune.rollout import JointSampler, TrajectorySampler, collect
from teamtune.tasks import Task

GAME = Game(lambda said: 1.0)
RANK_ZERO: Any = SimpleNamespace(is_global_zero=True, loggers=[])


def rollouts() -> list[Rollout]:
    """Two episodes each of the tasks a, b and c."""
    tasks, engine = [Task(name) for name in "abc"], numbering()
    return collect(GAME, tasks, TrajectorySampler(2, 1), {"a": engine, "b": engine}, POLICIES)


def traces(folder: Path, *steps: int, **settings: int) -> RolloutTraces:
    """The callback of a run with these steps, its page in `folder`."""
    made = RolloutTraces(**settings)
    made.data = SimpleNamespace(environment=GAME)  # type: ignore[assignment]
    for step in steps:
        made.team = SimpleNamespace(rollout_step=step, rollouts=rollouts(), run_dir=folder)  # type: ignore[assignment]
        made.on_train_batch_end(RANK_ZERO, None, None, None, 0)  # type: ignore[arg-type]
    return made


def shown(made: RolloutTraces) -> list[tuple[int, str, int]]:
    """Step, task and number of rollouts of every sample."""
    samples = map(json.loads, made.page.samples)
    return [(sample["step"], sample["task"], len(sample["rollouts"])) for sample in samples]


def test_the_first_step_and_every_nth_after_it_are_shown_with_all_episodes_of_a_task(tmp_path):
    made = traces(tmp_path, *range(1, 9), every_n_steps=3, num_tasks=2)
    assert shown(made) == [(step, task, 2) for step in (1, 4, 7) for task in "ab"]
    assert '"step":7,"task":"b"' in (tmp_path / "rollouts.html").read_text()


@pytest.mark.parametrize("steps", [0, 5])
def test_no_page_without_samples(tmp_path, steps):
    traces(tmp_path, 2, 3, every_n_steps=steps)
    assert not list(tmp_path.iterdir())


def test_a_resumed_run_shows_what_was_sampled_before(tmp_path):
    whole, first, second = (tmp_path / name for name in ("whole", "first", "second"))
    for folder in (whole, first, second):
        folder.mkdir()
    traces(whole, 1, 2, 3, 4, every_n_steps=2)
    state = traces(first, 1, 2, every_n_steps=2).state_dict()
    resumed = RolloutTraces(every_n_steps=2)
    resumed.load_state_dict(state)
    resumed.team = SimpleNamespace(rollout_step=2, run_dir=second)  # type: ignore[assignment]
    resumed.on_train_start(RANK_ZERO, None)  # type: ignore[arg-type]
    assert (second / "rollouts.html").read_text() == (first / "rollouts.html").read_text()
    resumed.data = SimpleNamespace(environment=GAME)  # type: ignore[assignment]
    resumed.team = SimpleNamespace(rollout_step=3, run_dir=second, rollouts=rollouts())  # type: ignore[assignment]
    resumed.on_train_batch_end(RANK_ZERO, None, None, None, 0)  # type: ignore[arg-type]
    assert (second / "rollouts.html").read_text() == (whole / "rollouts.html").read_text()


def test_other_ranks_write_nothing(tmp_path):
    made = RolloutTraces(every_n_steps=1)
    made.team = SimpleNamespace(rollout_step=1, rollouts=rollouts(), run_dir=tmp_path)  # type: ignore[assignment]
    made.on_train_batch_end(SimpleNamespace(is_global_zero=False), None, None, None, 0)  # type: ignore[arg-type]
    assert not made.page.samples and not list(tmp_path.iterdir())


def test_a_rollout_is_a_tree_of_spans():
    rollout = plain(play(Game(len, turns=2), JointSampler(2, max_turns=2)), str)
    root = spans(rollout, step=51, started=1000.0)
    assert root.name == "rollout" and root.inputs == {"task": "t"}
    assert root.attributes == {"step": 51, "episode": 0}
    assert root.outputs["return"] == 0.0
    assert [span.name for span in root.children] == [
        "turn 1",
        "turn 2 of branch /0",
        "turn 2 of branch /1",
    ]
    first, _, last = root.children
    assert first.inputs == {"state": "()"} and last.inputs == {"state": "(('1', '1'),)"}
    assert [joint["picks"] for joint in first.outputs] == [[0, 0], [1, 1]]
    assert all("opens" not in joint for joint in first.outputs)
    assert [span.name for span in last.children] == ["left", "right"]
    right = last.children[1]
    assert right.inputs == {"prompt": "right/1"}
    assert right.attributes == {"policy": "b", "turn": 1, "node": "/1"}
    assert [answer["reward"] for answer in right.outputs] == [2.0, 2.0]
    assert {span.started for span in (root, first, right)} == {1000.0}


def test_a_rollout_in_which_nobody_acted_is_one_span():
    root = spans(plain(Rollout("t"), str), step=1, started=0.0)
    assert root.children == [] and root.outputs["success"] is False
