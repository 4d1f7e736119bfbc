"""From experience to optimizer steps."""

from teamtune.training.loop import MultiOptimizerLoop
from teamtune.training.run_state import RunState, Session
from teamtune.training.team_module import TeamModule

__all__ = ["MultiOptimizerLoop", "RunState", "Session", "TeamModule"]
