"""How policies are laid out over ranks."""

from teamtune.strategies.fsdp2 import FSDP2Strategy

__all__ = ["FSDP2Strategy"]
