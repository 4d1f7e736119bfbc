"""The rules of each kind of task, and the contract they keep."""

from teamtune.envs.check import check_env
from teamtune.envs.code import Code
from teamtune.envs.coop_code import CoopCode
from teamtune.envs.environment import Environment, Message, Outcome, Reward, Transition
from teamtune.envs.math import Math
from teamtune.envs.plan_path import PlanPath
from teamtune.envs.proposal import ProposalState, ProposeAndPlay
from teamtune.envs.reasoning_gym import ReasoningGym
from teamtune.envs.revision import AnswerAndRevise, Marks, RevisionState
from teamtune.envs.sokoban import Sokoban
from teamtune.envs.sudoku import Sudoku
from teamtune.envs.team_work import TeamWork, Verdict
from teamtune.envs.writing import TLDR, ArXiv

__all__ = [
    "TLDR",
    "AnswerAndRevise",
    "ArXiv",
    "Code",
    "CoopCode",
    "Environment",
    "Marks",
    "Math",
    "Message",
    "Outcome",
    "PlanPath",
    "ProposalState",
    "ProposeAndPlay",
    "ReasoningGym",
    "RevisionState",
    "Reward",
    "Sokoban",
    "Sudoku",
    "TeamWork",
    "Transition",
    "Verdict",
    "check_env",
]
