"""Everything that happens at a time: rollouts, weight transfer, warm start, reports."""

from teamtune.callbacks.checkpoint import TeamCheckpoint
from teamtune.callbacks.export import HFExport
from teamtune.callbacks.memory import MemoryPlan
from teamtune.callbacks.progress import TeamProgress
from teamtune.callbacks.report import Report
from teamtune.callbacks.rollout import RolloutCallback
from teamtune.callbacks.traces import RolloutTraces, RolloutWriter
from teamtune.callbacks.warm_start import WarmStart
from teamtune.callbacks.weight_sync import WeightSync

__all__ = [
    "HFExport",
    "MemoryPlan",
    "Report",
    "RolloutCallback",
    "RolloutTraces",
    "RolloutWriter",
    "TeamCheckpoint",
    "TeamProgress",
    "WarmStart",
    "WeightSync",
]
