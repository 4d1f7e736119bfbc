"""Policies: the weights that agents use."""

from teamtune.policies.adapter import LoRA
from teamtune.policies.policy import Policy
from teamtune.policies.tiny import TinyLlama

__all__ = ["LoRA", "Policy", "TinyLlama"]
