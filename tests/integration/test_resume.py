"""A run that stops and resumes in a new process is, bit for bit, the run that never stopped."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch

from factories import checkpoint, logged, team_config
from teamtune.command.cli import run

ROOT = Path(__file__).parents[2]


def command(args: list[str]) -> str:
    """Runs `python -m src fit` as a user would; its output."""
    done = subprocess.run(
        [sys.executable, "-m", "src", "fit", *args],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def same_bits(own: Any, other: Any, at: str = "") -> None:
    """Two nested structures hold the same values; tensors bit by bit."""
    if isinstance(own, torch.Tensor):
        assert torch.equal(own, other), at
    elif isinstance(own, dict):
        assert own.keys() == other.keys(), at
        for key in own:
            same_bits(own[key], other[key], f"{at}.{key}")
    elif isinstance(own, list | tuple):
        assert len(own) == len(other), at
        for index, (a, b) in enumerate(zip(own, other)):
            same_bits(a, b, f"{at}.{index}")
    else:
        assert own == other, at


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Six steps in one go, and three, a new process, and three more.

    Policy a is trained in full beside a frozen reference, b through an adapter.
    """
    whole, parts = tmp_path_factory.mktemp("whole"), tmp_path_factory.mktemp("parts")
    torch.set_num_threads(1)
    settings: dict[str, Any] = {
        "data": {"tasks_per_step": 4, "val": {"init_args": {"count": 3}}},
        "model": {
            "minibatch_tasks": 2,
            "epochs": 2,
            "algorithm": {"init_args": {"kl_coef": 0.1}},
            "policies": {"b": {"init_args": {"lora": {"rank": 2}}}},
        },
        "trainer": {"check_val_every_n_epoch": 3},
    }
    run(["fit", *team_config(whole, **settings), "--trainer.max_epochs=6"])
    args = team_config(parts, **settings)
    command([*args, "--trainer.max_epochs=3"])
    last = parts / "outputs/run-001/checkpoints/last.ckpt"
    command([*args, "--trainer.max_epochs=6", "--ckpt_path", str(last)])
    return whole, parts


@pytest.mark.slow
def test_weights_optimizers_and_schedules_have_the_same_bits(folders: tuple[Path, Path]):
    own, other = (checkpoint(folder, 6) for folder in folders)
    for key in ("state_dict", "optimizer_states", "lr_schedulers"):
        same_bits(own[key], other[key], key)
    for team in (own["team"], other["team"]):
        team.pop("seconds")
    assert own["team"] == other["team"] and own["team"]["versions"] == {"a": 24, "b": 24}
    start = checkpoint(folders[0], 3)
    assert not torch.equal(
        start["state_dict"]["policies.a.scorer.lm.lm_head.weight"],
        own["state_dict"]["policies.a.scorer.lm.lm_head.weight"],
    )
    assert len(own["optimizer_states"]) == len(own["lr_schedulers"]) == 2


@pytest.mark.slow
def test_sampled_answers_rewards_and_credit_are_the_same(folders: tuple[Path, Path]):
    whole, parts = folders
    page = (whole / "outputs/run-001/rollouts.html").read_text()
    assert page == (parts / "outputs/run-002/rollouts.html").read_text()
    assert [page.count(f'{{"step":{step},') for step in range(8)] == [0, 4, 4, 4, 4, 4, 4, 0]


@pytest.mark.slow
def test_metrics_are_the_same(folders: tuple[Path, Path]):
    whole, parts = map(logged, folders)
    assert whole == parts
    assert {step for step, name in whole if name == "a/loss"} == {1, 2, 3, 4, 5, 6}
    assert {step for step, name in whole if name == "val/success"} == {0, 3, 6}
    rates = [whole[step, "b/lr"] for step in range(1, 7)]
    assert rates == pytest.approx([2e-3 * (1 - 0.9 * step / 8) for step in range(6)])


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm",
    [
        {"class_path": "teamtune.algorithms.MAGRPO", "init_args": {"num_candidates": 2}},
        {"class_path": "teamtune.algorithms.GRPO", "init_args": {"baseline": "leave_one_out"}},
        {"class_path": "teamtune.algorithms.GiGPO", "init_args": {"omega": 0.5}},
        {"class_path": "baselines.RunningMean", "init_args": {}},
    ],
    ids=lambda algorithm: algorithm["class_path"].split(".")[-1],
)
def test_every_algorithm_resumes_with_the_same_bits(algorithm: dict[str, Any], tmp_path: Path):
    """Also one with a memory of its own, which is in the checkpoint."""
    torch.set_num_threads(1)
    options = {"num_candidates": 3, "max_turns": 2, **algorithm["init_args"]}
    settings: dict[str, Any] = {
        "data": {"tasks_per_step": 2},
        "model": {"algorithm": {**algorithm, "init_args": options}},
        "trainer": {"check_val_every_n_epoch": 2},
    }
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run(["fit", *team_config(whole, **settings), "--trainer.max_epochs=4"])
    args = ["fit", *team_config(parts, **settings)]
    run([*args, "--trainer.max_epochs=2"])
    last = parts / "outputs/run-001/checkpoints/last.ckpt"
    run([*args, "--trainer.max_epochs=4", "--ckpt_path", str(last)])
    own, other = checkpoint(whole, 4), checkpoint(parts, 4)
    for team in (own["team"], other["team"]):
        team.pop("seconds")
    for key in ("state_dict", "optimizer_states", "lr_schedulers", "team"):
        same_bits(own[key], other[key], key)
    page = (whole / "outputs/run-001/rollouts.html").read_text()
    assert page == (parts / "outputs/run-002/rollouts.html").read_text()
    assert logged(whole) == logged(parts)
    before, after = checkpoint(whole, 2), own
    name = "policies.b.scorer.lm.lm_head.weight"
    assert not torch.equal(before["state_dict"][name], after["state_dict"][name])
    if "RunningMean" in algorithm["class_path"]:
        remembered, earlier = after["team"]["algorithm"], before["team"]["algorithm"]
        assert remembered["count"] > earlier["count"] > 0
    else:
        assert after["team"]["algorithm"] == {"step": 4}


class Interrupted(L.Callback):
    """Ctrl-C while the third step is sampled."""

    def on_train_batch_start(self, trainer: Any, pl_module: Any, *batch: Any) -> None:
        if pl_module.rollout_step == 2:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_an_interrupted_run_keeps_its_latest_step_whatever_the_checkpoints_interval(tmp_path: Path):
    torch.set_num_threads(1)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run(["fit", *team_config(whole), "--trainer.max_epochs=3"])
    args = ["fit", *team_config(parts, checkpoint={"every_n_steps": 100})]
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        run([*args, f"--trainer.callbacks+={{class_path: {__name__}.Interrupted}}"])
    last = parts / "outputs/run-001/checkpoints/last.ckpt"
    saved = torch.load(last, weights_only=True)
    own = checkpoint(whole, 2)
    for team in (own["team"], saved["team"]):
        team.pop("seconds")
    for key in ("state_dict", "optimizer_states", "lr_schedulers", "team", "loops"):
        same_bits(own[key], saved[key], key)
    run([*args, "--trainer.max_epochs=3", "--ckpt_path", str(last)])
    same_bits(checkpoint(whole, 3)["state_dict"], checkpoint(parts, 3)["state_dict"])
