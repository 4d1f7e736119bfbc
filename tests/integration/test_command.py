"""The command as a user meets it: help, all four subcommands, folders, seeds, silence."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from command_line import LAST, SOURCE, finish, query, start, statuses, write_team
from teamtune.command.cli import run

Capture = pytest.CaptureFixture[str]


def helped(capsys: Capture, *args: str) -> str:
    """The help text on one line, so that a sentence is found wherever it wraps."""
    with pytest.raises(SystemExit) as stopped:
        run(args)
    assert not stopped.value.code
    return " ".join(capsys.readouterr().out.split())


def test_help_shows_each_argument_s_line(capsys: Capture):
    assert "{fit,validate,test,predict}" in helped(capsys, "--help")
    fit = helped(capsys, "fit", "--help")
    for line in (
        "From agent to policy. One policy for all is shared",
        "Tasks of one rollout step, over all ranks.",
        "Rollout steps between checkpoints",
        "Logits are divided by it before sampling",
        "A run stops when a larger share",
        "Mean difference of a token's log-prob",
    ):
        assert line in fit, line


@pytest.mark.parametrize(
    ("option", "name", "lines"),
    [
        ("--model.algorithm.help", "teamtune.algorithms.ATGRPO", ["K, the candidates of a group."]),
        ("--data.environment.help", "teamtune.envs.PlanPath", ["Rows and columns of the board"]),
        ("--data.train.help", "GeneratedTasks", ["Seed of the first instance"]),
        (
            "--rollout.engine.help",
            "teamtune.inference.TransformersEngine",
            ["Most samples in the making at once"],
        ),
        (
            "--model.policies.help",
            "teamtune.policies.Policy",
            ["From parameters to an optimizer", "Most tokens of a micro-batch"],
        ),
        ("--trainer.callbacks.help", "teamtune.callbacks.WarmStart", ["Who is cloned."]),
        ("--trainer.logger.help", "teamtune.tracking.MLflowTracker", ["Groups runs."]),
    ],
)
def test_help_of_each_part(capsys: Capture, option: str, name: str, lines: list[str]):
    text = helped(capsys, "fit", option, name)
    for line in lines:
        assert line in text


@pytest.mark.slow
def test_fit_then_validate_test_and_predict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
):
    monkeypatch.chdir(tmp_path)
    config = ("--config", str(write_team(tmp_path)))
    code, output, errors = finish(start(tmp_path, "fit", *config, "--seed_everything", "7"))
    assert (code, errors) == (0, ""), errors
    assert "files: outputs/run-001" in output
    assert statuses(tmp_path) == ["FINISHED"]
    first = tmp_path / "outputs/run-001"
    assert yaml.safe_load((first / "config.yaml").read_text())["seed_everything"] == 7
    params = dict(query(tmp_path, "select key, value from params"))
    assert params["seed_everything"] == "7" and params["rollout.sampling.max_tokens"] == "3"
    assert list(tmp_path.glob("mlartifacts/*/artifacts/config.yaml"))
    names = {row[0] for row in query(tmp_path, "select distinct key from metrics")}
    assert {"team/loss", "rollout/success_best_of_k", "val/success"} <= names
    last = str(first / LAST)
    assert torch.load(last, weights_only=True)["team"]["rollout_step"] == 2

    before = {path: path.read_bytes() for path in first.rglob("*") if path.is_file()}
    for command in ("validate", "test", "predict"):
        run([command, *config, "--ckpt_path", last])
        assert "no --ckpt_path" not in capsys.readouterr().out
        run([command, *config])
        assert "no --ckpt_path: evaluating" in capsys.readouterr().out
    folders = sorted(p.name for p in (tmp_path / "outputs").iterdir())
    assert folders == [f"run-{n:03d}" for n in range(1, 8)]
    trained, untrained = (
        json.loads((tmp_path / f"outputs/run-00{n}/evaluations.json").read_text()) for n in (2, 3)
    )
    assert [row["step"] for row in trained + untrained] == [2, 0]
    assert len((tmp_path / "outputs/run-006/rollouts.jsonl").read_text().splitlines()) == 2
    assert {path: path.read_bytes() for path in before} == before
    assert statuses(tmp_path) == ["FINISHED"]


def test_a_random_seed_is_chosen_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PL_GLOBAL_SEED", raising=False)
    seeds = []
    write_team(tmp_path)
    args = ("fit", "--config", "config.yaml", "--seed_everything", "true")
    for number in (1, 2):
        run([*args, "--trainer.max_epochs=1", "--trainer.logger=false"])
        kept = tmp_path / f"outputs/run-00{number}/config.yaml"
        seeds.append(yaml.safe_load(kept.read_text())["seed_everything"])
        monkeypatch.delenv("PL_GLOBAL_SEED", raising=False)
    assert all(type(seed) is int for seed in seeds) and seeds[0] != seeds[1]


@pytest.mark.slow
def test_python_m_src_is_the_same_command_and_two_runs_share_no_folder(tmp_path: Path):
    config = str(write_team(tmp_path))
    for file in ("prompts", "words.txt"):
        text = Path(config).read_text().replace(f": {file}\n", f": {tmp_path / file}\n")
        Path(config).write_text(text)
    root = f"--trainer.default_root_dir={tmp_path / 'outputs'}"
    args = ["fit", "--config", config, root, "--trainer.logger=false"]
    both = [
        subprocess.Popen(
            [sys.executable, "-m", "src", *args],
            cwd=SOURCE.parent,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ),
        start(tmp_path, *args),
    ]
    ended = [finish(process) for process in both]
    assert [(code, errors) for code, _, errors in ended] == [(0, ""), (0, "")]
    for number in (1, 2):
        assert (tmp_path / f"outputs/run-00{number}" / LAST).exists()
        assert sum(f"run-00{number}" in output for _, output, _ in ended) == 1
    steps = [
        torch.load(tmp_path / f"outputs/run-00{n}" / LAST, weights_only=True)["state_dict"]
        for n in (1, 2)
    ]
    assert all(torch.equal(steps[0][name], steps[1][name]) for name in steps[0])


@pytest.mark.slow
def test_a_run_with_a_timer_and_without_a_bar_ends_well_on_a_terminal_that_knows_ascii_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """No file is opened in the locale's encoding, so that none can fail to be written."""
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    monkeypatch.setenv("PYTHONWARNDEFAULTENCODING", "1")
    for name, value in {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}.items():
        monkeypatch.setenv(name, value)
    write_team(tmp_path)
    timer = "{class_path: Timer, init_args: {duration: '00:01:00:00'}}"
    options = (f"--trainer.callbacks+={timer}", "--trainer.enable_progress_bar=false")
    code, output, errors = finish(start(tmp_path, "fit", "--config", "config.yaml", *options))
    assert code == 0, errors
    assert "| ATGRPO (step 2)" in output and output.isascii()
    assert "\u2013" in (tmp_path / "outputs/run-001/result.md").read_text("utf-8")
    told = [line for line in errors.splitlines() if "EncodingWarning" in line]
    ours = [line for line in told if "/teamtune/" in line and "/teamtune/tracking/" not in line]
    assert told and ours == []  # the tracker's are locks and /proc
    kept = yaml.safe_load((tmp_path / "outputs/run-001/config.yaml").read_text())
    assert kept["trainer"]["callbacks"][0]["init_args"]["interval"] == "step"
