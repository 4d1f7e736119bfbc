"""A small team in a folder of its own, and the command run on it, for tests of the command."""

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

SOURCE = Path(__file__).parents[1] / "src"
LAST = "checkpoints/last.ckpt"
LR = "model.policies.team.init_args.optimizer.init_args.lr"

Config = dict[str, Any]


def small_config() -> Config:
    """One policy of a few thousand weights, 5 x 5 boards, two tasks per step, relative paths."""
    model = {"vocabulary": "words.txt", "hidden_size": 32, "num_layers": 1, "num_heads": 2}
    model |= {"intermediate_size": 48, "context_length": 48}
    policy = {
        "model": {"class_path": "teamtune.policies.TinyLlama", "init_args": model},
        "optimizer": {"class_path": "torch.optim.AdamW", "init_args": {"lr": 1e-3}},
    }
    board = {"size": 5, "obstacle_probability": 0.1, "max_moves": 2, "first_role": "proposer"}
    board |= {"prompts": "prompts"}
    tasks = "teamtune.tasks.GeneratedTasks"
    return {
        "trainer": {"accelerator": "cpu", "devices": 1, "max_epochs": 2},
        "data": {
            "environment": {"class_path": "teamtune.envs.PlanPath", "init_args": board},
            "train": {"class_path": tasks, "init_args": {"first_seed": 900}},
            "val": {"class_path": tasks, "init_args": {"first_seed": 0, "count": 2}},
            "tasks_per_step": 2,
        },
        "model": {
            "algorithm": {
                "class_path": "teamtune.algorithms.ATGRPO",
                "init_args": {"num_candidates": 2, "max_turns": 1},
            },
            "policies": {"team": {"class_path": "teamtune.policies.Policy", "init_args": policy}},
            "policy_map": {"proposer": "team", "planner": "team"},
        },
        "rollout": {
            "engine": {"class_path": "teamtune.inference.TransformersEngine"},
            "sampling": {"max_tokens": 3},
        },
        "checkpoint": {"every_n_steps": 1},
        "report": {"evaluate_first": False},
    }


def write_team(folder: Path, change: Callable[[Config], Any] | None = None) -> Path:
    """Writes prompts, vocabulary and `config.yaml` to `folder`; `change` edits the latter."""
    (folder / "prompts").mkdir(parents=True, exist_ok=True)
    (folder / "prompts" / "all.jinja").write_text("{{ role }} at {{ row }} {{ column }}\n")
    (folder / "words.txt").write_text("proposer planner at 0 1 2 3 4 U D L R")
    config = small_config()
    if change is not None:
        change(config)
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path


def start(folder: Path, *args: str) -> "subprocess.Popen[str]":
    """The installed command in a process of its own, in `folder`; modules there can be imported."""
    paths = os.pathsep.join([str(SOURCE), str(folder)])
    return subprocess.Popen(
        [sys.executable, "-c", "from teamtune.command.cli import main; main()", *args],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: "subprocess.Popen[str]", seconds: float = 240) -> tuple[int, str, str]:
    """Exit code, standard output and standard error; the process is killed when it takes longer."""
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return process.returncode, output, errors


def wait_for(path: Path, process: "subprocess.Popen[str]", seconds: float = 240) -> None:
    """Returns when `path` exists; fails when the process ends before."""
    end = time.monotonic() + seconds
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, f"no {path} after {seconds} s"
        time.sleep(0.02)


def query(folder: Path, sql: str) -> list[Any]:
    """Rows from the folder's MLflow database."""
    with sqlite3.connect(folder / "mlflow.db") as connection:
        return connection.execute(sql).fetchall()


def statuses(folder: Path) -> list[str]:
    """The status of every run."""
    return [row[0] for row in query(folder, "select status from runs")]
