"""The MLflow logger: opened late, by rank zero, one run with a true status, no end of training."""

import json
import os
import shutil
import sqlite3
import subprocess
import threading
import time
import warnings
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from teamtune.tracking import MLflowTracker, Span, server, tracker
from teamtune.tracking.database import Database
from teamtune.tracking.process import is_dead, process


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with MLflow's tables, which take seconds to make."""
    path = tmp_path_factory.mktemp("empty") / "mlflow.db"
    Database(path).client()
    return path


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tracker, "PAUSE", 0.0)
    monkeypatch.setattr(tracker, "SHARE", 1e6)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def database(folder: Path, empty: Path) -> Path:
    return Path(shutil.copy(empty, folder))


def query(sql: str, path: str = "mlflow.db") -> list[tuple]:
    with sqlite3.connect(path) as connection:
        return connection.execute(sql).fetchall()


def begun(folder: Path, name: str = "run-001", **options: Any) -> MLflowTracker:
    """A tracker on a run folder of that name."""
    made = MLflowTracker(**options)
    (folder / name).mkdir(exist_ok=True)
    made.begin(folder / name)
    return made


def reports(folder: Path, name: str = "run-001") -> list[tuple[int, dict[str, float]]]:
    lines = (folder / name / "metrics.jsonl").read_text().splitlines()
    return [(line["step"], line["values"]) for line in map(json.loads, lines)]


METRICS = "select step, value from metrics order by step"


# A run


def test_the_database_is_opened_at_first_use_and_by_rank_zero_only(
    folder: Path, empty: Path, monkeypatch: pytest.MonkeyPatch
):
    tracker = MLflowTracker()
    assert list(folder.iterdir()) == []
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    tracker.experiment.log_param("x", "a", 1)
    tracker.begin(folder)
    tracker.log_metrics({"a": 1.0})
    tracker.finalize("failed")
    assert tracker.run_id is None
    assert list(folder.iterdir()) == []
    monkeypatch.setattr(rank_zero_only, "rank", 0)
    shutil.copy(empty, folder)
    assert tracker.run_id
    assert query("select run_uuid from runs") == [(tracker.run_id,)]


def test_the_client_alone_begins_no_run(database: Path):
    tracker = MLflowTracker()
    assert tracker.experiment.search_experiments()[0].name == "Default"
    assert (tracker.name, tracker.version) == ("teamtune", None)
    tracker.finalize("failed")
    assert query("select * from runs") == []


def test_a_run_s_configuration_metrics_and_resumption(folder: Path, database: Path):
    first = begun(folder)
    first.log_config("a: 1\n", {"a": {"b": 1, "c": []}, "long": "x" * 9000}, "run-001")
    first.log_metrics({"team/loss": 1.5}, 1)
    assert query("select status, name from runs") == [("RUNNING", f"{folder.name}/run-001")]
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        first.finalize("failed")
    assert query("select status from runs") == [("KILLED",)]

    second = begun(folder, "run-002", run_id=first.run_id)
    second.log_config("a: 2\n", {"a": {"b": 2, "c": []}}, "run-002")
    assert query("select status from runs") == [("RUNNING",)]
    second.log_metrics({"team/loss": 0.5}, 2)
    second.finalize("success")
    assert query("select status from runs") == [("FINISHED",)]
    assert query(METRICS) == [(1, 1.5), (2, 0.5)]
    params = dict(query("select key, value from params"))
    assert params.pop("long").startswith("x" * 5000) and params == {"a.b": "1", "a.c": "[]"}
    files = {p.name: p.read_text() for p in folder.glob("mlartifacts/**/*.yaml")}
    assert files == {"config.yaml": "a: 1\n", "config-run-002.yaml": "a: 2\n"}
    assert reports(folder) == [(1, {"team/loss": 1.5})]
    assert reports(folder, "run-002") == [(2, {"team/loss": 0.5})]


def test_an_exception_makes_a_run_failed(database: Path):
    tracker = MLflowTracker()
    tracker.log_metrics({"a": 1.0}, 1)
    try:
        raise RuntimeError("x")
    except RuntimeError:
        tracker.finalize("failed")
    assert query("select status from runs") == [("FAILED",)]


def test_what_runs_again_after_a_resumption_is_logged_once(folder: Path, database: Path):
    first = begun(folder)
    for step in (1, 2, 3):
        first.log_metrics({"a": float(step)}, step)
    first.log_metrics({"val/a": 2.0}, 2)
    second = begun(folder, "run-002", run_id=first.run_id)
    with pytest.warns(UserWarning, match="step 2 from before it was resumed") as told:
        for step in (2, 3, 4):
            second.log_metrics({"a": -float(step)}, step)
            second.log_metrics({"val/a": -float(step)}, step)
    assert len(told) == 1
    rows = query("select step, key, value from metrics order by key, step")
    assert rows == [
        *[(1, "a", 1.0), (2, "a", 2.0), (3, "a", 3.0), (4, "a", -4.0)],
        *[(2, "val/a", 2.0), (3, "val/a", -3.0), (4, "val/a", -4.0)],
    ]
    assert [step for step, _ in reports(folder, "run-002")] == [2, 2, 3, 3, 4, 4]


def test_a_run_that_is_not_in_the_database_begins_anew_with_a_warning(folder: Path, database: Path):
    with pytest.warns(UserWarning, match="does not have MLflow run 0000"):
        tracker = begun(folder, run_id="0" * 32)
    tracker.log_config("a: 1\n", {"a": 1}, "run-001")
    assert tracker.run_id != "0" * 32
    assert query("select key, value from params") == [("a", "1")]


@pytest.mark.parametrize("what", ["run", "experiment"])
def test_what_is_deleted_in_mlflow_while_it_runs_is_a_whole_new_run(
    what: str, folder: Path, database: Path
):
    tracker = begun(folder)
    tracker.log_config("a: 1\n", {"a": 1}, "run-001")
    tracker.log_metrics({"a": 1.0}, 1)
    old, client = tracker.run_id, tracker.experiment
    client.delete_run(old) if what == "run" else client.delete_experiment(tracker.experiment_id)
    with pytest.warns(UserWarning, match=f"{old}, or it was deleted; a new run begins"):
        tracker.log_metrics({"a": 2.0}, 2)
        tracker.log_metrics({"a": 3.0}, 3)
    new = tracker.run_id
    assert new not in (None, old)
    assert query(f"select step, value from metrics where run_uuid = '{new}'") == [
        *[(1, 1.0), (2, 2.0), (3, 3.0)]
    ]
    assert query(f"select key, value from params where run_uuid = '{new}'") == [("a", "1")]
    name = tracker.experiment.get_experiment(tracker.experiment_id).name
    assert name == ("teamtune" if what == "run" else "teamtune-2")


def test_a_run_may_have_a_name_and_a_parent(folder: Path, database: Path):
    parent = begun(folder, run_name="study").run_id
    child = begun(folder, "run-002", parent_run_id=parent)
    tags = child.experiment.get_run(child.run_id).data.tags
    assert tags["mlflow.parentRunId"] == parent
    assert [name for (name,) in query("select name from runs order by start_time")] == [
        *["study", f"{folder.name}/run-002"]
    ]


def test_a_run_whose_process_was_killed_is_marked_by_the_next(
    folder: Path, database: Path, monkeypatch: pytest.MonkeyPatch
):
    other = subprocess.Popen(["sleep", "60"])
    name = process(other.pid)
    monkeypatch.setattr(server, "process", lambda: name)
    lost = begun(folder)
    lost.log_metrics({"a": 1.0}, 1)
    monkeypatch.undo()
    os.chdir(folder)
    begun(folder, "run-002")
    assert query("select status from runs") == [("RUNNING",)] * 2
    other.kill()
    other.wait()
    begun(folder, "run-003")
    ends = query("select status, end_time from runs order by start_time")
    assert [status for status, _ in ends] == ["KILLED", "RUNNING", "RUNNING"]
    assert ends[0][1] == query("select timestamp from metrics")[0][0]


def test_processes_are_told_apart_by_number_and_start():
    other = subprocess.Popen(["sleep", "60"])
    name = process(other.pid)
    assert name is not None and name.startswith(f"{other.pid}-") and not is_dead(name)
    assert is_dead(f"{other.pid}-1")  # the number of a process that came later
    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    assert is_dead(name)  # dead, though nobody has asked for its exit code
    other.wait()
    assert is_dead(name)


@pytest.mark.parametrize("name", ["pass@1", "a b", "a.b", "x[0]", "x:y", ""])
def test_metric_names_that_mlflow_would_change_are_refused(name: str):
    with pytest.raises(ValueError, match="letters, digits"):
        MLflowTracker().log_metrics({name: 1.0})


# Where


def test_the_environment_counts_where_the_configuration_says_nothing(
    folder: Path, empty: Path, monkeypatch: pytest.MonkeyPatch
):
    shutil.copy(empty, folder / "other.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///other.db")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    tracker = begun(folder)
    assert query("select name from experiments", "other.db")[1:] == [("mine",)]
    assert tracker.name == "mine"
    assert MLflowTracker(experiment_name="named").name == "named"
    assert os.environ["MLFLOW_TRACKING_URI"] == "sqlite:///other.db"
    shutil.copy(empty, folder / "named.db")
    begun(folder, "run-002", tracking_uri="sqlite:///named.db")
    assert query("select count(*) from runs", "named.db") == [(1,)]
    assert os.environ["MLFLOW_TRACKING_URI"] == "sqlite:///other.db"


def test_no_tracker_speaks_for_the_next(
    folder: Path, database: Path, monkeypatch: pytest.MonkeyPatch
):
    assert begun(folder).run_id
    assert "MLFLOW_TRACKING_URI" not in os.environ


def test_folders_with_signs_that_addresses_use(
    tmp_path: Path, empty: Path, monkeypatch: pytest.MonkeyPatch
):
    odd = tmp_path / "50% of a%20b?c#d"
    odd.mkdir()
    monkeypatch.chdir(odd)
    shutil.copy(empty, odd)
    tracker = begun(odd)
    tracker.log_config("a: 1\n", {"a": 1}, "run-001")
    tracker.log_metrics({"a": 1.0}, 1)
    tracker.finalize("success")
    assert query("select status from runs") == [("FINISHED",)]
    assert query(METRICS) == [(1, 1.0)]
    assert [p.read_text() for p in odd.glob("mlartifacts/*/artifacts/config.yaml")] == ["a: 1\n"]
    assert [p.name for p in tmp_path.iterdir()] == [odd.name]


def test_files_and_traces_go_to_the_run(folder: Path, database: Path):
    tracker = begun(folder)
    (folder / "curve.png").write_bytes(b"1")
    tracker.log_file(folder / "curve.png")
    tracker.log_file(Path("curve.png"), "pictures")
    with pytest.warns(UserWarning, match="gone.png does not exist"):
        tracker.log_file(Path("gone.png"))
    files = {str(p.relative_to(p.parents[1])) for p in folder.glob("mlartifacts/**/*.png")}
    assert files == {"artifacts/curve.png", "pictures/curve.png"}

    turn = Span("turn 1", inputs="go", outputs="U", attributes={"reward": 0.5}, started=7.5)
    tracker.log_trace("step 3", Span("task", {"seed": 1}, {"solved": True}, {}, [turn], 7.0, 2.0))
    [trace] = tracker.experiment.search_traces(
        locations=[tracker.experiment_id], run_id=tracker.run_id
    )
    root, child = trace.data.spans
    assert trace.info.tags["mlflow.traceName"] == "step 3"
    assert (root.name, root.inputs, root.outputs) == ("task", {"seed": 1}, {"solved": True})
    assert (root.start_time_ns, root.end_time_ns) == (7_000_000_000, 9_000_000_000)
    assert (child.name, child.inputs, child.outputs, child.parent_id) == (
        *("turn 1", "go", "U"),
        root.span_id,
    )
    assert child.attributes["reward"] == 0.5 and child.start_time_ns == 7_500_000_000


# A database that fails


def start_a_run(number: int) -> None:
    begun(Path.cwd(), f"run-00{number}").log_metrics({"a": 1.0}, number)


def test_runs_that_start_at_once_where_no_database_is(folder: Path):
    runs = [get_context("fork").Process(target=start_a_run, args=(n,)) for n in (1, 2, 3)]
    for run in runs:
        run.start()
    for run in runs:
        run.join(60)
    assert [run.exitcode for run in runs] == [0, 0, 0]
    assert query("select step from metrics order by step") == [(1,), (2,), (3,)]
    assert query("select name from experiments") == [("Default",), ("teamtune",)]


def test_a_locked_database_delays_but_loses_nothing(folder: Path, database: Path):
    tracker = begun(folder)
    lock = sqlite3.connect(database)
    lock.execute("begin exclusive")
    began = time.monotonic()
    with pytest.warns(UserWarning, match="database is locked; training goes on") as told:
        tracker.log_metrics({"a": 1.0}, 1)
        tracker.log_metrics({"a": 2.0}, 2)
    assert len(told) == 1 and time.monotonic() - began < 6
    lock.close()
    tracker.log_metrics({"a": 3.0}, 3)
    assert query(METRICS) == [(1, 1.0), (2, 2.0), (3, 3.0)]


def test_a_run_that_begins_in_a_pause_gets_its_chance_at_the_end(
    folder: Path, database: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tracker, "PAUSE", 100.0)
    lock = sqlite3.connect(database)
    lock.execute("begin exclusive")
    run = MLflowTracker()
    with pytest.warns(UserWarning, match="database is locked"):
        assert run.experiment.search_experiments() is None
    lock.close()
    run.begin(folder)
    run.log_metrics({"a": 1.0}, 1)
    assert query("select * from runs") == []
    run.finalize("success")
    assert query("select status from runs") == [("FINISHED",)]
    assert query(METRICS) == [(1, 1.0)]


def test_a_database_that_is_deleted_begins_again_with_every_metric(
    folder: Path, database: Path, empty: Path
):
    tracker = begun(folder)
    tracker.log_metrics({"a": 1.0}, 1)
    database.unlink()
    with pytest.warns(UserWarning, match="unable to open database file; training goes on"):
        tracker.log_metrics({"a": 2.0}, 2)
    shutil.copy(empty, folder)
    with pytest.warns(UserWarning, match="a new run begins"):
        tracker.log_metrics({"a": 3.0}, 3)
    assert query(METRICS) == [(1, 1.0), (2, 2.0), (3, 3.0)]


def test_a_file_that_is_no_database_is_a_warning_and_told_at_the_end(folder: Path):
    (folder / "mlflow.db").write_text("not a database, but a text of some length\n" * 100)
    began = time.monotonic()
    with pytest.warns(UserWarning, match="file is not a database; training goes on") as told:
        tracker = begun(folder)
        tracker.log_metrics({"a": 1.0}, 1)
        tracker.finalize("success")
    assert "MLflow does not have all of this run: metrics are in" in str(told[-1].message)
    assert len(told) == 2 and time.monotonic() - began < 5
    assert reports(folder) == [(1, {"a": 1.0})]


# A server that fails


class Server:
    """As much of a tracking server as a run needs.

    Attributes:
        delay: Seconds before the answer, after the work is done.
        runs: By number, their metrics as a set, for MLflow's key is the whole row.
    """

    def __init__(self, port: int = 0):
        self.delay = 0.0
        self.runs: dict[str, dict[str, Any]] = {}
        self.requests: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.reply({})

            def do_POST(self) -> None:
                self.reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def reply(self, asked: dict[str, Any]) -> None:
                answer = json.dumps(outer.answer(self.path, asked)).encode()
                time.sleep(outer.delay)
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                try:
                    self.wfile.write(answer)
                except BrokenPipeError:
                    return

            def log_message(self, *args: Any) -> None:
                return

        self.http = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self.http.server_port
        threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        self.http.shutdown()
        self.http.server_close()

    def answer(self, path: str, asked: dict[str, Any]) -> dict[str, Any]:
        what = path.partition("?")[0].removeprefix("/api/2.0/mlflow/")
        self.requests.append(what)
        if what == "experiments/get-by-name":
            return {"experiment": {"experiment_id": "7", "lifecycle_stage": "active"}}
        if what == "runs/create":
            tags = {tag["key"]: tag["value"] for tag in asked["tags"]}
            run_id = f"{len(self.runs) + 1:032}"
            self.runs[run_id] = {"tags": tags, "metrics": set(), "params": {}, "status": "RUNNING"}
            return {"run": self.run(run_id)}
        if what == "runs/search":
            wanted = asked["filter"]
            found = [n for n, r in self.runs.items() if r["tags"]["teamtune.session"] in wanted]
            return {"runs": [self.run(n) for n in found]}
        if what == "runs/get":
            return {"run": self.run(path.partition("run_id=")[2][:32])}
        if what == "runs/log-batch":
            run = self.runs[asked["run_id"]]
            run["metrics"] |= {tuple(sorted(m.items())) for m in asked.get("metrics", [])}
            run["params"] |= {p["key"]: p["value"] for p in asked.get("params", [])}
        if what == "runs/update":
            self.runs[asked["run_id"]]["status"] = asked["status"]
            return {"run_info": self.run(asked["run_id"])["info"]}
        return {}

    def run(self, run_id: str) -> dict[str, Any]:
        info = {"run_id": run_id, "experiment_id": "7", "lifecycle_stage": "active"}
        return {"info": info | {"status": "RUNNING", "start_time": 1}, "data": {}}

    @property
    def steps(self) -> list[list[int]]:
        """Of every run, the steps of its metrics."""
        metrics = [run["metrics"] for run in self.runs.values()]
        return [sorted(dict(metric)["step"] for metric in run) for run in metrics]


@pytest.fixture
def mlflow_server() -> Iterator[Server]:
    made = Server()
    yield made
    made.stop()


def test_a_server_that_starts_late_gets_everything_once(folder: Path):
    early = Server()
    early.stop()
    uri = f"http://me:secret@127.0.0.1:{early.port}"
    began = time.monotonic()
    with pytest.warns(UserWarning, match="refused") as told:
        tracker = begun(folder, tracking_uri=uri)
        tracker.log_hyperparams({"a": 1})
        for step in range(1, 31):
            tracker.log_metrics({"a": 0.5, "b": float("nan")}, step)
    assert time.monotonic() - began < 5
    assert len(told) == 1 and "secret" not in str(told[0].message)
    assert tracker.run_id is None
    assert [step for step, _ in reports(folder)] == [*range(1, 31)]

    late = Server(early.port)
    tracker.log_metrics({"a": 0.5, "b": 1.0}, 31)
    tracker.finalize("success")
    late.stop()
    assert late.steps == [sorted([*range(1, 32)] * 2)]
    [run] = late.runs.values()
    assert run["params"] == {"a": "1"} and run["status"] == "FINISHED"


def test_answers_that_come_too_late_make_nothing_twice(
    folder: Path, mlflow_server: Server, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    tracker = MLflowTracker(tracking_uri=f"http://127.0.0.1:{mlflow_server.port}")
    assert mlflow_server.runs == {}
    tracker._server.connect()
    answer = mlflow_server.answer

    def late(path: str, asked: dict[str, Any]) -> dict[str, Any]:
        mlflow_server.delay = 1.5 if "create" in path or "log-batch" in path else 0.0
        return answer(path, asked)

    mlflow_server.answer = late  # type: ignore[method-assign]
    with pytest.warns(UserWarning, match="timed out"):
        tracker.log_metrics({"a": 1.0}, 1)
    assert len(mlflow_server.runs) == 1
    tracker.log_metrics({"a": 2.0}, 2)  # finds the run; this is not answered either
    assert mlflow_server.steps == [[1, 2]]
    mlflow_server.answer = answer  # type: ignore[method-assign]
    mlflow_server.delay = 0.0
    tracker.log_metrics({"a": 3.0}, 3)
    assert mlflow_server.steps == [[1, 2, 3]] and len(mlflow_server.runs) == 1


def test_a_server_that_hangs_takes_a_small_share_of_the_time(
    folder: Path, mlflow_server: Server, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setattr(tracker, "SHARE", 0.05)
    mlflow_server.delay = 3.0
    began = time.monotonic()
    with pytest.warns(UserWarning, match="timed out"):
        run = begun(folder, tracking_uri=f"http://127.0.0.1:{mlflow_server.port}")
    for step in range(50):
        run.log_metrics({"a": 1.0}, step)
    assert time.monotonic() - began < 2
    assert len(mlflow_server.requests) == 1
    run.finalize("success")
    assert len(mlflow_server.requests) == 2 and time.monotonic() - began < 4


def test_an_upload_that_is_never_accepted_blocks_no_other(folder: Path, database: Path):
    tracker = begun(folder)
    (folder / "a").write_text("")
    (folder / "b").write_text("")
    blocked = Path(tracker.experiment.get_run(tracker.run_id).info.artifact_uri[7:]) / "bad"
    blocked.parent.mkdir(parents=True)
    blocked.write_text("a file where a folder should be")
    with pytest.warns(UserWarning, match="training goes on"):
        tracker.log_file(folder / "a", "bad")
        tracker.log_file(folder / "b", "good")
        tracker.log_metrics({"a": 1.0}, 1)
    assert [p.name for p in folder.glob("mlartifacts/**/good/*")] == ["b"]
    assert query(METRICS) == [(1, 1.0)]


def test_a_server_keeps_files_where_it_likes_unless_told(folder: Path, database: Path):
    def place(**options: Any) -> Any:
        return MLflowTracker(**options)._artifact_location

    assert place(tracking_uri="http://127.0.0.1:1") is None
    assert place(tracking_uri="http://127.0.0.1:1", artifact_location="s3://x/y") == "s3://x/y"
    assert place() == (folder / "mlartifacts").as_uri()


def test_nothing_is_said_when_all_is_well(folder: Path, database: Path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tracker = begun(folder)
        tracker.log_config("a: 1\n", {"a": 1}, "run-001")
        tracker.log_metrics({"a": float("inf")}, 1)
        tracker.finalize("success")
    assert query("select status from runs") == [("FINISHED",)]


def test_the_last_description_is_the_one_that_mlflow_shows(folder, database):
    tracker = begun(folder)
    tracker.describe("half of it")
    tracker.describe("all of it")
    tracker.finalize("success")
    assert query("select value from tags where key = 'mlflow.note.content'") == [("all of it",)]
