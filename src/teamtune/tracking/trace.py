"""What happened in a rollout as a tree of spans: one MLflow trace."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Span:
    """One piece of work; `inputs`, `outputs` and `attributes` are plain values, as JSON has them.

    `started` in seconds since 1970, `seconds` of wall time.
    """

    name: str
    inputs: Any = None
    outputs: Any = None
    attributes: dict[str, Any] = field(default_factory=dict)
    children: Sequence["Span"] = ()
    started: float = 0.0
    seconds: float = 0.0


def write_trace(name: str, root: Span, experiment_id: str, run_id: str) -> None:
    """Writes a trace called `name`, attached to a run, to the place that `mlflow` is set to."""
    import mlflow

    def write(span: Span, parent: Any = None, **trace: Any) -> None:
        begin = int(span.started * 1e9)
        live = mlflow.start_span_no_context(
            span.name,
            parent_span=parent,
            inputs=span.inputs,
            attributes=span.attributes,
            start_time_ns=begin,
            **trace,
        )
        for child in span.children:
            write(child, live)
        live.end(outputs=span.outputs, end_time_ns=begin + int(span.seconds * 1e9))

    tags = {"mlflow.traceName": name}
    write(root, tags=tags, metadata={"mlflow.sourceRun": run_id}, experiment_id=experiment_id)
