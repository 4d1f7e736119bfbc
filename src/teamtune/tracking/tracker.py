"""MLflow as the tracker: a run per training, with a true status, resumed as the same run.

What a run reports is kept here, in its folder and in memory, and `_sync` brings the server up to
it. A server that fails is asked again later: training neither ends nor waits for it.
"""

import os
import re
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lightning.fabric.loggers.logger import _DummyExperiment
from lightning.pytorch.loggers import MLFlowLogger
from lightning.pytorch.loggers.logger import rank_zero_experiment
from lightning.pytorch.utilities.rank_zero import rank_zero_only, rank_zero_warn

from teamtune.tracking.journal import Journal
from teamtune.tracking.server import Server, latest
from teamtune.tracking.trace import Span, write_trace

MAX_PARAM = 6000
UNOPENED = "http://unopened"
METRIC = re.compile(r"[A-Za-z0-9_/-]+")
PAUSE = 10.0
"""Seconds at least between attempts to reach a server that failed."""
SHARE = 0.05
"""Of the wall time at most that such attempts take."""

Upload = Callable[[Any, str], Any]


class MLflowTracker(MLFlowLogger):
    """Lightning's MLflow logger, on a local SQLite file by default.

    The database is opened when training starts, by rank zero alone: a configuration that is refused
    leaves none behind. No method raises for what MLflow does: there is one warning, training goes
    on, and `metrics.jsonl` in the run folder has every metric.
    """

    def __init__(
        self,
        experiment_name: str | None = None,
        run_name: str | None = None,
        tracking_uri: str | None = None,
        artifact_location: str | None = None,
        run_id: str | None = None,
        parent_run_id: str | None = None,
    ):
        """
        Args:
            experiment_name: Groups runs. Null takes MLFLOW_EXPERIMENT_NAME, else `teamtune`.
            run_name: Name of the run; null names it after its folder.
            tracking_uri: Where runs are kept, e.g. a server's address. Null takes
                MLFLOW_TRACKING_URI, else `sqlite:///mlflow.db`.
            artifact_location: Folder or address for files of a new experiment. Null takes the
                server's own; with a SQLite file, `mlartifacts`.
            run_id: Run to continue; set when training resumes from a checkpoint.
            parent_run_id: Run to nest this one under, such as a study's.
        """
        name = experiment_name or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "teamtune"
        uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"
        if artifact_location is None and uri.startswith("sqlite:"):
            artifact_location = "mlartifacts"
        if artifact_location is not None and "://" not in artifact_location:
            artifact_location = Path(artifact_location).absolute().as_uri()
        super().__init__(
            experiment_name=name,
            run_name=run_name,
            tracking_uri=UNOPENED,  # the base class connects at once, which a web address does not
            artifact_location=artifact_location,
            run_id=run_id,
        )
        self._tracking_uri = uri
        self._server = Server(uri, name, artifact_location)
        self._parent_run_id = parent_run_id
        self._started = int(time.time() * 1000)
        self._resumed = run_id is not None
        self._earlier: dict[str, int] | None = None
        self._journal = Journal()
        self._params: dict[str, str] = {}
        self._description: dict[Any, Upload] = {}
        self._uploads: dict[Any, Upload] = {}
        self._status: str | None = None
        self._begun = False
        self._ready = False
        self._failing = False
        self._repeats = False
        self._next_attempt = 0.0

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """The MLflow client, or one that ignores every call while the server fails."""
        self._sync(self._server.connect)
        return self._server.client or _DummyExperiment()

    @property
    def run_id(self) -> str | None:
        """The run, which the first use creates; None while the server fails, and on other ranks."""
        self._sync()
        return self._run_id

    @property
    def experiment_id(self) -> str | None:
        """As `run_id`."""
        self._sync()
        return self._experiment_id

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self._experiment_name

    @property
    def version(self) -> str | None:
        """The run, if there is one."""
        return self._run_id

    @rank_zero_only
    def begin(self, run_dir: Path) -> None:
        """From here on metrics are kept in `metrics.jsonl` in the run folder; the run begins."""
        self._journal.begin(run_dir / "metrics.jsonl")
        if self._run_name is None:
            self._run_name = "/".join(run_dir.absolute().parts[-2:])
        self._sync()

    @rank_zero_only
    def log_config(self, text: str, values: dict[str, Any], session: str) -> None:
        """The whole configuration as a file, and for a new run its values as parameters.

        Args:
            text: The configuration as YAML.
            values: The same as mappings.
            session: Name of the run folder; a resumed run has several configurations.
        """
        self._description["config"] = lambda client, run_id: client.log_text(
            run_id, text, f"config-{session}.yaml" if self._resumed else "config.yaml"
        )
        self.log_hyperparams(values)

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace) -> None:
        """Parameters of a new run; a resumed one keeps its own."""
        values = params if isinstance(params, dict) else vars(params)
        self._params |= {key: str(value)[:MAX_PARAM] for key, value in _flat(values).items()}
        self._description["params"] = self._send_params
        self._uploads |= self._description
        self._sync()

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Raises ValueError for a name that MLflow would change, for two could become one."""
        for name in metrics:
            if not METRIC.fullmatch(name):
                raise ValueError(f"metric {name!r}: allowed are letters, digits, '_', '/' and '-'")
        self._journal.add(metrics, step or 0)
        self._sync()

    @rank_zero_only
    def log_file(self, path: Path, folder: str = "") -> None:
        """A file, as it is when the server takes it, under `folder` among the run's artifacts."""

        def upload(client: Any, run_id: str) -> None:
            if path.exists():
                client.log_artifact(run_id, str(path), folder or None)
            else:
                rank_zero_warn(f"{path} does not exist; MLflow does not get it")

        path = path.absolute()
        self._uploads[path, folder] = upload
        self._sync()

    @rank_zero_only
    def describe(self, text: str) -> None:
        """What MLflow shows above a run's metrics, in Markdown; the last call counts."""
        self._uploads["description"] = lambda client, run_id: client.set_tag(
            run_id, "mlflow.note.content", text
        )
        self._sync()

    @rank_zero_only
    def log_trace(self, name: str, root: Span) -> None:
        """A tree of spans as an MLflow trace that belongs to the run."""
        self._uploads[name, id(root)] = lambda client, run_id: write_trace(
            name, root, self._experiment_id or "", run_id
        )
        self._sync()

    @rank_zero_only
    def finalize(self, status: str = "success") -> None:
        """Gives the run its status, and the server a last chance to get what it missed."""
        if not self._begun:
            return
        if status == "failed" and isinstance(sys.exc_info()[1], KeyboardInterrupt):
            status = "KILLED"
        self._status = {"success": "FINISHED", "finished": "FINISHED", "failed": "FAILED"}.get(
            status, status
        )
        self._sync(last=True)
        if self._failing:
            rank_zero_warn(f"MLflow does not have all of this run: {self._kept}")

    @property
    def _kept(self) -> str:
        return f"metrics are in {self._journal.path or 'memory'}"

    @rank_zero_only
    def _sync(self, work: Callable[[], None] | None = None, last: bool = False) -> None:
        """Tells the server what it does not know, or does `work`; after a failure not at once."""
        self._begun |= work is None
        began = time.monotonic()
        if began < self._next_attempt and not last:
            return
        try:
            (work or self._send)()
        except Exception as error:  # noqa: BLE001 - the tracking boundary: each store has its own
            self._missed(error, time.monotonic() - began)
        else:
            self._failing = self._failing and work is not None

    def _missed(self, error: Exception, seconds: float) -> None:
        self._next_attempt = time.monotonic() + max(PAUSE, seconds / SHARE)
        self._server.client, self._ready = None, False
        if self._failing:
            return
        self._failing = True
        text = " ".join(str(error).split())
        if len(text) > 300:  # the cause stands at the end
            text = f"{text[:150]} ... {text[-150:]}"
        text = re.sub(r"//[^/\s@]*@", "//", f"MLflow at {self._tracking_uri}: {text}")
        rank_zero_warn(f"{text}; training goes on, {self._kept}, and MLflow is tried again")

    def _send(self) -> None:
        self._server.connect()
        if not self._ready:
            self._begin_run()
        client, run_id = self._server.client, self._run_id
        assert run_id is not None
        for reports in self._journal.batches(10):
            metrics = [metric for report in reports for metric in self._metrics(report)]
            for start in range(0, len(metrics), 1000):
                client.log_batch(run_id, metrics=metrics[start : start + 1000])
        for key in list(self._uploads):
            self._uploads[key] = self._uploads.pop(key)  # last: should it fail, others come first
            self._uploads[key](client, run_id)
            del self._uploads[key]
        if self._status is not None:
            client.set_terminated(run_id, self._status)
            self._status = None

    def _begin_run(self) -> None:
        run = None
        if self._run_id is not None:
            run = self._server.continue_run(self._run_id)
            if run is None:
                rank_zero_warn(
                    f"{self._tracking_uri} does not have MLflow run {self._run_id}, or it was "
                    "deleted; a new run begins"
                )
                self._run_id, self._resumed, self._earlier = None, False, None
                self._journal.sent = 0
                self._uploads |= self._description
        if run is None:
            run = self._server.create_run(self._run_name, self._started, self._parent_run_id)
        if self._earlier is None:
            self._earlier = latest(run, "step") if self._resumed else {}
        self._run_id, self._experiment_id = run.info.run_id, run.info.experiment_id
        self._ready = True

    def _metrics(self, report: dict[str, Any]) -> Iterator[Any]:
        """Those that the run did not have before it was resumed."""
        from mlflow.entities import Metric

        assert self._earlier is not None
        step, stamp = report["step"], round(report["time"] * 1000)
        for name, value in report["values"].items():
            if step > self._earlier.get(name, -1):
                yield Metric(name, value, stamp, step)
            elif not self._repeats:
                self._repeats = True
                rank_zero_warn(
                    f"MLflow run {self._run_id} has step {step} from before it was resumed; what "
                    f"runs again is not logged twice, {self._kept}"
                )

    def _send_params(self, client: Any, run_id: str) -> None:
        from mlflow.entities import Param

        if self._resumed:
            return
        params = [Param(key, value) for key, value in self._params.items()]
        for start in range(0, len(params), 100):
            client.log_batch(run_id, params=params[start : start + 100])


def _flat(values: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(values, dict) or not values:
        return {prefix: values}
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}.{key}" if prefix else str(key))
    return flat
