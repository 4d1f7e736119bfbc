"""ReasoningGym: any generator of reasoning-gym as the problem of one agent or of two."""

from teamtune.envs.reasoning_gym.environment import ReasoningGym

__all__ = ["ReasoningGym"]
