"""Policies: the weights that agents use."""

from teamtune.policies.policy import Policy
from teamtune.policies.tiny import TinyLlama

__all__ = ["Policy", "TinyLlama"]
