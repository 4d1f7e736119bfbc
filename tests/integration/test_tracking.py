"""Training when MLflow fails, and a run that was killed and goes on."""

import json
import socket
from collections import Counter
from pathlib import Path

import pytest

from command_line import LAST, finish, query, start, write_team

pytestmark = pytest.mark.slow

KILLER = """
import os, signal
import lightning as L

class Killer(L.Callback):
    "Ends the process, as a machine that goes down, after the third step is logged."
    def on_train_batch_end(self, trainer, module, *args):
        if module.rollout_step == 3 and not os.path.exists("killed"):
            open("killed", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_training_whose_server_never_answers_ends_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{taken.getsockname()[1]}")
        config = str(write_team(tmp_path))
        code, _, errors = finish(start(tmp_path, "fit", "--config", config))
    assert code == 0, errors
    assert errors.count("Connection refused") == 1 and "Traceback" not in errors
    assert "MLflow does not have all of this run: metrics are in" in errors
    run = tmp_path / "outputs/run-001"
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert {line["step"] for line in lines if "team/lr" in line["values"]} == {1, 2}
    assert (run / LAST).exists() and not (tmp_path / "mlflow.db").exists()


def test_steps_that_run_again_after_a_kill_are_logged_once(tmp_path: Path):
    (tmp_path / "killer.py").write_text(KILLER)

    def change(config: dict) -> None:
        config["trainer"] |= {"max_epochs": 4, "callbacks": [{"class_path": "killer.Killer"}]}
        config["checkpoint"]["every_n_steps"] = 2

    args = ("fit", "--config", str(write_team(tmp_path, change)))
    assert finish(start(tmp_path, *args))[0] == -9
    code, _, errors = finish(start(tmp_path, *args, "--ckpt_path", f"outputs/run-001/{LAST}"))
    assert code == 0, errors
    assert errors.count("from before it was resumed") == 1
    assert query(tmp_path, "select status from runs") == [("FINISHED",)]
    rows = query(tmp_path, "select key, step from metrics where key not like 'time/%'")
    times = Counter(rows)  # weights move twice in a step, each with a time of its own
    assert {step for _, step in times} == {0, 1, 2, 3, 4} and set(times.values()) == {1}
