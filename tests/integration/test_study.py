"""A small study as a user runs it: interrupted, taken up again, with a row that fails."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from command_line import finish, query, wait_for, write_team

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
WARM_START = {
    "class_path": "teamtune.callbacks.WarmStart",
    "init_args": {
        "steps": 1,
        "tasks_per_step": 2,
        "demonstrator": {"class_path": "teamtune.envs.plan_path.NoisySolver", "init_args": {}},
    },
}
STUDY = {
    "question": "Does it go on where it stopped?",
    "seeds": [0, 1],
    "configs": ["config.yaml"],
    "options": {"report.evaluate_first": True, "trainer.check_val_every_n_epoch": 10},
    "threshold": 0.5,
    "rows": {
        "start": {"label": "untrained", "train": False},
        "team": {"label": "AT-GRPO", "start_from": "start"},
        "broken": {"label": "broken", "options": {"model.algorithm.init_args.num_candidates": 1}},
    },
}
OUTPUTS = Path("outputs/studies/exp")


def study(*options: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "experiments.study", "exp", *options],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def starts(run: str) -> list[str]:
    lines = (OUTPUTS / run / "starts.jsonl").read_text().splitlines()
    return [json.loads(line)["command"] for line in lines]


def test_a_study_that_is_interrupted_runs_only_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    Path("exp").mkdir()
    Path("exp/study.yaml").write_text(yaml.safe_dump(STUDY))
    write_team(tmp_path, lambda c: c["trainer"].update(max_epochs=20, callbacks=[dict(WARM_START)]))
    process = study("--rows", "team", "--seeds", "0")
    wait_for(OUTPUTS / "team/seed-0/run-001/checkpoints/last.ckpt", process)
    process.send_signal(signal.SIGINT)
    code, output, errors = finish(process)
    assert code == 130, output + errors
    again = "python -m experiments.study exp --rows team --seeds 0 goes on"
    assert errors.strip().splitlines()[-1] == f"study: interrupted; {again}"
    assert query(tmp_path, "select name, status from runs order by start_time") == [
        ("exp", "KILLED"),
        ("exp/start/seed-0", "FINISHED"),
        ("exp/team/seed-0", "KILLED"),
    ]

    code, output, errors = finish(study("--jobs", "2"), 480)
    assert code == 1, output + errors
    failed = [line for line in errors.splitlines() if line.startswith("study: ")]
    assert failed == [
        f"study: broken/seed-{n} failed: exit code 2, see {OUTPUTS}/broken/seed-{n}/log.txt"
        for n in (0, 1)
    ]
    assert "num_candidates: got 1" in (OUTPUTS / "broken/seed-0/log.txt").read_text()
    assert len(starts("start/seed-0")) == 1
    first, second = starts("team/seed-0")
    assert second == f"{first} --ckpt_path last" and "start/seed-0/run-001/export/team" in first

    (parent,) = query(tmp_path, "select run_uuid, status from runs where name = 'exp'")
    assert parent[1] == "FAILED"
    tag = "select value from tags where key = 'mlflow.parentRunId'"
    children = "select status, name from runs where run_uuid != ? order by name"
    assert query(tmp_path, tag) == [(parent[0],)] * 4
    assert query(tmp_path, children.replace("?", f"'{parent[0]}'")) == [
        ("FINISHED", f"exp/{row}/seed-{n}") for row in ("start", "team") for n in (0, 1)
    ]

    rows = json.loads(Path("exp/results.json").read_text())["rows"]
    assert {name: list(seeds) for name, seeds in rows.items()} == {
        "start": ["0", "1"],
        "team": ["0", "1"],
    }
    for seeds in rows["team"].values():
        evaluations = seeds["evaluations"]
        assert [e["step"] for e in evaluations] == [0, 10, 20]
        tokens = [e["tokens"] for e in evaluations]
        assert 0 == tokens[0] < tokens[1] < tokens[2]
        assert all(0 <= e["trained_tokens"] <= e["tokens"] for e in evaluations)
    warm, begun = (rows[row]["0"]["evaluations"][0] for row in ("start", "team"))
    assert warm["name"] == "warm start" and begun["mean_return"] == warm["mean_return"]
    assert "AT-GRPO   | 2 " in Path("exp/results.md").read_text()
    assert Path("exp/curve.png").read_bytes().startswith(b"\x89PNG")
