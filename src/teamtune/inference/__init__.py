"""Engines that generate for policies."""

from teamtune.inference.chat import CharChat, ChatFormat, HFChat
from teamtune.inference.engine import Completion, RolloutEngine, Sampling
from teamtune.inference.scripted import ScriptedEngine
from teamtune.inference.transformers import TransformersEngine

__all__ = [
    "CharChat",
    "ChatFormat",
    "Completion",
    "HFChat",
    "RolloutEngine",
    "Sampling",
    "ScriptedEngine",
    "TransformersEngine",
]
