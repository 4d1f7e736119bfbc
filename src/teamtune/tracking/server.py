"""Where MLflow keeps runs, as a tracker needs it: one run, made once, taken up again, or lost."""

import logging
import os
import uuid
from pathlib import Path
from typing import Any

from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from teamtune.tracking.database import PREFIX, Database
from teamtune.tracking.process import is_dead, machine, process

SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",  # nobody asked for it
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",  # it would sleep in between; the tracker comes again
    "MLFLOW_SQLALCHEMYSTORE_POOLCLASS": "NullPool",  # a connection outlives the file's deletion
    "MLFLOW_ENABLE_ASYNC_TRACE_LOGGING": "false",
}
"""Where the user's environment says nothing."""


class Server:
    """A tracking server or database, and an experiment there. Methods raise what MLflow raises.

    Attributes:
        client: The MLflow client, once connected; None makes the next `connect` begin anew.
    """

    def __init__(self, uri: str, experiment: str, artifacts: str | None):
        """
        Args:
            uri: Its address.
            experiment: Name of the experiment, which is created when it is missing.
            artifacts: Address for the files of a new experiment; null for the server's own.
        """
        self.client: Any = None
        file = uri.removeprefix(PREFIX)
        self.database = Database(Path(file)) if file != uri else None
        self._uri, self._experiment, self._artifacts = uri, experiment, artifacts
        self._session = uuid.uuid4().hex
        self._asked = False

    def connect(self) -> None:
        """Makes the client; where there is one, sees that its database is still there."""
        if self.client is not None:
            if self.database is not None:
                self.database.check()
            return
        for key, value in SETTINGS.items():
            os.environ.setdefault(key, value)
        import mlflow

        for name in ("mlflow", "alembic"):  # they announce every table
            logging.getLogger(name).setLevel(logging.WARNING)
        logging.getLogger("mlflow.store.db.utils").setLevel(
            logging.CRITICAL
        )  # what it logs it raises
        if self.database is None:
            address, client = self._uri, mlflow.MlflowClient(self._uri)
        else:
            address, client = self.database.address, self.database.client()
        before = os.environ.get("MLFLOW_TRACKING_URI")
        mlflow.set_tracking_uri(address)  # for traces, which have no other way
        if before is None:  # it sets the variable, which the next tracker would take for the user's
            os.environ.pop("MLFLOW_TRACKING_URI", None)
        else:
            os.environ["MLFLOW_TRACKING_URI"] = before
        self.client = client

    def create_run(self, name: str | None, started: int, parent: str | None) -> Any:
        """A new run, or the one that an earlier call made without getting an answer.

        Args:
            name: Of the run.
            started: In milliseconds since 1970.
            parent: The run that it belongs to.
        """
        from mlflow.tracking.context.registry import resolve_tags

        experiment = self._experiment_id()
        if self._asked:
            same = f"tags.`teamtune.session` = '{self._session}'"
            if found := self.client.search_runs([experiment], same):
                return found[0]
        self._close_dead_runs(experiment)
        tags = {**_owner(), "teamtune.session": self._session}
        if parent is not None:
            tags["mlflow.parentRunId"] = parent
        self._asked = True
        return self.client.create_run(experiment, started, resolve_tags(tags), name)

    def continue_run(self, run_id: str) -> Any:
        """A run that goes on in this process; None when it does not exist or is deleted."""
        from mlflow.entities import RunTag
        from mlflow.exceptions import MlflowException

        try:
            run = self.client.get_run(run_id)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return None
        if run.info.lifecycle_stage == "deleted":
            return None
        self.client.log_batch(run_id, tags=[RunTag(*tag) for tag in _owner().items()])
        self.client.update_run(run_id, status="RUNNING")
        return run

    def _experiment_id(self) -> str:
        """The experiment's. A deleted one keeps its name: the next free one is taken."""
        name, number = self._experiment, 1
        while True:
            found = self.client.get_experiment_by_name(name) or self._create_experiment(name)
            if found.lifecycle_stage != "deleted":
                break
            number += 1
            name = f"{self._experiment}-{number}"
        if number > 1:
            rank_zero_warn(f"MLflow's experiment {self._experiment} is deleted; this is {name}")
        return found.experiment_id

    def _create_experiment(self, name: str) -> Any:
        from mlflow.exceptions import MlflowException

        try:
            self.client.create_experiment(name, self._artifacts)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":  # by another run that starts now
                raise
        return self.client.get_experiment_by_name(name)

    def _close_dead_runs(self, experiment: str) -> None:
        """Marks as killed what a process of this machine left running when it was."""
        mine = f"attributes.status = 'RUNNING' and tags.`teamtune.machine` = '{machine()}'"
        for run in self.client.search_runs([experiment], mine):
            if is_dead(run.data.tags["teamtune.process"]):
                end = max(latest(run, "timestamp").values(), default=run.info.start_time)
                self.client.set_terminated(run.info.run_id, "KILLED", end)


def latest(run: Any, what: str) -> dict[str, int]:
    """The `step` or `timestamp` of the last value of every metric of a run."""
    return {metric.key: getattr(metric, what) for metric in run.data.to_proto().metrics}


def _owner() -> dict[str, str]:
    """Tags that tell which process runs a run; none where that cannot be told."""
    name = process()
    return {} if name is None else {"teamtune.machine": machine(), "teamtune.process": name}
