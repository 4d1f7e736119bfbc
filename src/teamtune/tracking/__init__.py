"""What a run reports: to a file in its folder always, to MLflow whenever that answers."""

from teamtune.tracking.trace import Span
from teamtune.tracking.tracker import MLflowTracker

__all__ = ["MLflowTracker", "Span"]
