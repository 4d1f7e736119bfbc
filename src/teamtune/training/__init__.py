"""From experience to optimizer steps."""

from teamtune.training.batch import PackedBatch, pack
from teamtune.training.loop import MultiOptimizerLoop
from teamtune.training.team_module import TeamModule

__all__ = ["MultiOptimizerLoop", "PackedBatch", "TeamModule", "pack"]
