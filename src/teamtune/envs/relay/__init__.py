"""Relay: who sees the way cannot walk, and who walks cannot see it; they need words."""

from teamtune.envs.relay.ceilings import random_success, single_agent_ceiling
from teamtune.envs.relay.demonstrator import Babbler
from teamtune.envs.relay.environment import Relay, RelayState

__all__ = ["Babbler", "Relay", "RelayState", "random_success", "single_agent_ceiling"]
