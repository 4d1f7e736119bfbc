"""MLflow as the tracker: a run per training, with a true status, resumed as the same run."""

import sys
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import MLFlowLogger
from lightning.pytorch.utilities.rank_zero import rank_zero_only

MAX_PARAM = 6000


class MLflowTracker(MLFlowLogger):
    """Lightning's MLflow logger, on a local SQLite file by default."""

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
            tracking_uri=tracking_uri,
            artifact_location=artifact_location,
            run_id=run_id,
        )
        self._resumed = run_id is not None

    @rank_zero_only
    def log_config(self, text: str, values: dict[str, Any]) -> None:
        """The whole configuration as a file, and for a new run its values as parameters."""
        from mlflow.entities import Param

        name = "config-resumed.yaml" if self._resumed else "config.yaml"
        self.experiment.log_text(self.run_id, text, name)
        if self._resumed:
            self.experiment.update_run(self.run_id, status="RUNNING")
            return
        params = [Param(key, str(value)[:MAX_PARAM]) for key, value in _flat(values).items()]
        for start in range(0, len(params), 100):
            self.experiment.log_batch(self.run_id, params=params[start : start + 100])

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
