"""From experience to optimizer steps."""

from teamtune.training.loop import MultiOptimizerLoop
from teamtune.training.team_module import TeamModule

__all__ = ["MultiOptimizerLoop", "TeamModule"]
