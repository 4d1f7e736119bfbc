"""Signals end a run within seconds; its checkpoint loads, its status is true, and it resumes."""

import signal
import time
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from command_line import LAST, LR, Config, finish, query, start, statuses, wait_for, write_team
from teamtune.command.cli import run
from teamtune.errors import ConfigError

pytestmark = pytest.mark.slow
ENDLESS = ("--trainer.max_epochs", "1000000")

PARTS = """
import os, pathlib, random, signal, time
from typing import Any
import lightning as L

class Slow:
    "A demonstrator that says when it began and never ends."
    def answer(self, env: Any, state: Any, agent: str, rng: random.Random) -> str:
        pathlib.Path("warm").touch()
        while True:
            time.sleep(0.01)

class Broken:
    def answer(self, env: Any, state: Any, agent: str, rng: random.Random) -> str:
        raise RuntimeError("the demonstrator broke")

class Signal:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.05)

class DiesInExport(L.Callback):
    "Killed when all policies but the last are exported, and that one half."
    def on_train_start(self, trainer, module):
        name, policy = list(module.trained().items())[-1]
        export = policy.export
        def half(folder, *args):
            export(folder, *args)
            next(folder.glob("*.safetensors")).unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        policy.export = half

class Swallow(L.Callback):
    "Gets SIGTERM where Python drops exceptions."
    def on_train_batch_end(self, trainer, module, *args):
        if module.rollout_step == 1:
            Signal()
"""


def warm_start(demonstrator: str, config: Config) -> None:
    part = {"demonstrator": {"class_path": f"interrupted.{demonstrator}"}, "steps": 1}
    callback = {"class_path": "teamtune.callbacks.WarmStart", "init_args": part}
    config["trainer"]["callbacks"] = [callback]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "interrupted.py").write_text(PARTS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_sigterm_in_a_warm_start_ends_promptly_with_143_and_killed(folder: Path):
    write_team(folder, lambda config: warm_start("Slow", config))
    process = start(folder, "fit", "--config", "config.yaml")
    wait_for(folder / "warm", process)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    code, _, errors = finish(process)
    assert time.monotonic() - began < 20
    assert code == 143
    assert errors.splitlines() == [
        "teamtune: interrupted; --ckpt_path <run folder>/checkpoints/last.ckpt resumes a fit"
    ]
    assert statuses(folder) == ["KILLED"]


def test_sigterm_that_python_swallows_still_ends_the_run(folder: Path):
    swallow = [{"class_path": "interrupted.Swallow"}]
    write_team(folder, lambda config: config["trainer"].update(callbacks=swallow))
    code, _, errors = finish(start(folder, "fit", "--config", "config.yaml", *ENDLESS))
    assert code == 143
    assert "Exception ignored in" not in errors and errors.count("\n") == 1
    assert statuses(folder) == ["KILLED"]


def test_an_error_in_training_has_a_traceback_and_the_status_failed(folder: Path):
    write_team(folder, lambda config: warm_start("Broken", config))
    with pytest.raises(RuntimeError, match="the demonstrator broke"):
        run(["fit", "--config", "config.yaml"])
    assert statuses(folder) == ["FAILED"]


def test_ctrl_c_then_sigkill_then_resume_is_one_run_to_the_end(folder: Path):
    write_team(folder)
    args = ("fit", "--config", "config.yaml")
    first, second, third = (folder / f"outputs/run-00{n}" for n in (1, 2, 3))

    process = start(folder, *args, *ENDLESS)
    wait_for(first / LAST, process)
    process.send_signal(signal.SIGINT)
    code, _, errors = finish(process)
    assert (code, statuses(folder)) == (130, ["KILLED"])
    assert "Traceback" not in errors and errors.count("\n") == 1
    team = torch.load(first / LAST, weights_only=True)["team"]
    [(run_id,)] = query(folder, "select run_uuid from runs")
    assert team["run_id"] == run_id and team["rollout_step"] >= 1
    saved = (first / LAST).read_bytes()

    process = start(folder, *args, *ENDLESS, "--ckpt_path", str(first / LAST))
    wait_for(second / LAST, process)
    assert statuses(folder) == ["RUNNING"]
    for taken in (first, second):
        with pytest.raises(ConfigError, match=f"in use by process {process.pid} on"):
            run([*args, *ENDLESS, "--ckpt_path", str(taken / LAST)])
    assert not third.exists()
    process.kill()
    process.communicate()
    assert statuses(folder) == ["RUNNING"]
    killed = torch.load(second / LAST, weights_only=True)["team"]
    assert killed["rollout_step"] > team["rollout_step"]

    run(["validate", "--config", "config.yaml", "--ckpt_path", str(second / LAST)])
    assert statuses(folder) == ["RUNNING"]

    end = killed["rollout_step"] + 2
    changed = ("--trainer.max_epochs", str(end), f"--{LR}", "1e-4")
    run([*args, *changed, "--ckpt_path", str(second / LAST)])
    assert query(folder, "select run_uuid, status from runs") == [(run_id, "FINISHED")]
    rates = "select step, value from metrics where key = 'team/lr' order by step"
    assert dict(query(folder, rates))[end] == pytest.approx(1e-4)
    final = torch.load(folder / "outputs/run-004" / LAST, weights_only=True)["team"]
    assert final["rollout_step"] == end and final["run_id"] == run_id
    assert third.is_dir() and (first / LAST).read_bytes() == saved


def test_a_run_killed_in_its_export_exports_when_it_is_resumed(folder: Path):
    def two(config: Config) -> None:
        policies = config["model"]["policies"]
        policies["other"] = policies["team"]
        config["model"]["policy_map"]["planner"] = "other"

    def dying(config: Config) -> None:
        two(config)
        config["trainer"]["callbacks"] = [{"class_path": "interrupted.DiesInExport"}]

    write_team(folder, dying)
    code, _, _ = finish(start(folder, "fit", "--config", "config.yaml"))
    assert code == -signal.SIGKILL
    first, second = (folder / f"outputs/run-00{n}" for n in (1, 2))
    assert [path.name for path in (first / "export").glob("[!.]*")] == ["team"]

    write_team(folder, two)
    run(["fit", "--config", "config.yaml", "--ckpt_path", str(first / LAST)])
    state = torch.load(first / LAST, weights_only=True)["state_dict"]
    for name in ("team", "other"):
        model = AutoModelForCausalLM.from_pretrained(second / "export" / name)
        head = state[f"policies.{name}.scorer.lm.lm_head.weight"]
        assert torch.equal(model.state_dict()["lm_head.weight"], head)
    assert statuses(folder) == ["FINISHED"]
