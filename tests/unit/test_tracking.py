"""The MLflow logger: opened late, by rank zero, one run with a true status."""

import sqlite3
from pathlib import Path

import pytest
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from teamtune.tracking import MLflowTracker


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def query(sql: str) -> list[tuple]:
    with sqlite3.connect("mlflow.db") as connection:
        return connection.execute(sql).fetchall()


def test_the_database_is_opened_at_first_use_and_by_rank_zero_only(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    tracker = MLflowTracker()
    assert list(folder.iterdir()) == []
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    tracker.experiment.log_param("x", "a", 1)
    tracker.log_metrics({"a": 1.0})
    tracker.finalize("failed")
    assert list(folder.iterdir()) == []
    monkeypatch.setattr(rank_zero_only, "rank", 0)
    assert tracker.run_id
    assert (folder / "mlflow.db").exists()


def test_a_run_s_configuration_metrics_and_resumption(folder: Path):
    first = MLflowTracker()
    first.log_config("a: 1\n", {"a": {"b": 1, "c": []}, "long": "x" * 9000}, "run-001")
    first.log_metrics({"team/loss": 1.5}, 1)
    assert query("select status from runs") == [("RUNNING",)]
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        first.finalize("failed")
    assert query("select status from runs") == [("KILLED",)]

    second = MLflowTracker(run_id=first.run_id)
    second.log_config("a: 2\n", {"a": {"b": 2, "c": []}}, "run-002")
    assert query("select status from runs") == [("RUNNING",)]
    second.log_metrics({"team/loss": 0.5}, 2)
    second.finalize("success")
    assert query("select status from runs") == [("FINISHED",)]
    assert query("select step, value from metrics order by step") == [(1, 1.5), (2, 0.5)]
    params = dict(query("select key, value from params"))
    assert params.pop("long").startswith("x" * 5000) and params == {"a.b": "1", "a.c": "[]"}
    files = {p.name: p.read_text() for p in folder.glob("mlartifacts/**/*.yaml")}
    assert files == {"config.yaml": "a: 1\n", "config-run-002.yaml": "a: 2\n"}


def test_an_exception_makes_a_run_failed():
    tracker = MLflowTracker()
    assert tracker.run_id
    try:
        raise RuntimeError("x")
    except RuntimeError:
        tracker.finalize("failed")
    assert query("select status from runs") == [("FAILED",)]


def test_a_run_that_is_not_in_the_database_begins_anew_with_a_warning():
    tracker = MLflowTracker(run_id="0" * 32)
    with pytest.warns(UserWarning, match="does not have the checkpoint's MLflow run 0000"):
        tracker.log_config("a: 1\n", {"a": 1}, "run-001")
    assert tracker.run_id != "0" * 32
    assert query("select key, value from params") == [("a", "1")]


@pytest.mark.parametrize("name", ["pass@1", "a b", "a.b", "x[0]", "x:y", ""])
def test_metric_names_that_mlflow_would_change_are_refused(name: str):
    with pytest.raises(ValueError, match="letters, digits"):
        MLflowTracker().log_metrics({name: 1.0})
