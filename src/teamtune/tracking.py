"""MLflow as the tracker: a run per training, with a true status, resumed as the same run."""

import logging
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import MLFlowLogger
from lightning.pytorch.loggers.logger import rank_zero_experiment
from lightning.pytorch.utilities.rank_zero import rank_zero_only, rank_zero_warn

MAX_PARAM = 6000
SQLITE = "sqlite:///"
UNOPENED = "http://unopened"
METRIC = re.compile(r"[A-Za-z0-9_/-]+")


class MLflowTracker(MLFlowLogger):
    """Lightning's MLflow logger, on a local SQLite file by default.

    The database is opened when training starts, by rank zero alone: a configuration that is refused
    leaves none behind, and ranks do not race to create its tables.
    """

    def __init__(
        self,
        experiment_name: str = "teamtune",
        run_name: str | None = None,
        tracking_uri: str = "sqlite:///mlflow.db",
        artifact_location: str = "mlartifacts",
        run_id: str | None = None,
    ):
        """
        Args:
            experiment_name: Groups runs.
            run_name: Name of the run; null lets MLflow choose one.
            tracking_uri: Where runs are kept, e.g. `sqlite:///mlflow.db` or a server's address.
            artifact_location: Folder or address for files of a new experiment.
            run_id: Run to continue; set when training resumes from a checkpoint.
        """
        if "://" not in artifact_location:
            artifact_location = Path(artifact_location).absolute().as_uri()
        super().__init__(
            experiment_name=experiment_name,
            run_name=run_name,
            tracking_uri=UNOPENED,  # the base class connects at once, which a web address does not
            artifact_location=artifact_location,
            run_id=run_id,
        )
        file = tracking_uri.removeprefix(SQLITE)
        if file != tracking_uri:  # MLflow remembers databases by address, whatever the folder
            tracking_uri = SQLITE + str(Path(file).absolute())
        self._tracking_uri = tracking_uri
        self._opened = False
        self._resumed = run_id is not None

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """The MLflow client; the first use opens the database and creates or finds the run."""
        if not self._opened:
            self._open()
        return super().experiment

    def _open(self) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # nobody asked for it
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient

        for name in ("mlflow", "alembic"):  # they announce every table
            logging.getLogger(name).setLevel(logging.WARNING)
        logging.getLogger("lightning.pytorch.loggers.mlflow").setLevel(logging.ERROR)
        self._mlflow_client = MlflowClient(self._tracking_uri)
        self._opened = True
        if self._run_id is None:
            return
        try:
            self._mlflow_client.get_run(self._run_id)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            rank_zero_warn(
                f"{self._tracking_uri} does not have the checkpoint's MLflow run {self._run_id}; "
                "a new run begins"
            )
            self._run_id, self._resumed = None, False

    @rank_zero_only
    def log_config(self, text: str, values: dict[str, Any], session: str) -> None:
        """The whole configuration as a file, and for a new run its values as parameters.

        Args:
            text: The configuration as YAML.
            values: The same as mappings.
            session: Name of the run folder; a resumed run has several configurations.
        """
        from mlflow.entities import Param

        client, run_id = self.experiment, self.run_id  # the first use tells whether it is resumed
        client.log_text(run_id, text, f"config-{session}.yaml" if self._resumed else "config.yaml")
        if self._resumed:
            client.update_run(run_id, status="RUNNING")
            return
        params = [Param(key, str(value)[:MAX_PARAM]) for key, value in _flat(values).items()]
        for start in range(0, len(params), 100):
            client.log_batch(run_id, params=params[start : start + 100])

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Raises ValueError for a name that MLflow would change, for two could become one."""
        for name in metrics:
            if not METRIC.fullmatch(name):
                raise ValueError(f"metric {name!r}: allowed are letters, digits, '_', '/' and '-'")
        super().log_metrics(metrics, step)

    @rank_zero_only
    def finalize(self, status: str = "success") -> None:
        if status == "failed" and isinstance(sys.exc_info()[1], KeyboardInterrupt):
            status = "KILLED"
        super().finalize(status)


def _flat(values: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(values, dict) or not values:
        return {prefix: values}
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}.{key}" if prefix else str(key))
    return flat
