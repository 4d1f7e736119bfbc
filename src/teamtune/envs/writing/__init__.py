"""Writing as a team: summaries of posts, introductions from abstracts."""

from teamtune.envs.writing.environment import TLDR, ArXiv
from teamtune.envs.writing.reward import Levels, joint_reward

__all__ = ["TLDR", "ArXiv", "Levels", "joint_reward"]
