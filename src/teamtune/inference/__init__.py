"""Engines that generate for policies."""

from teamtune.inference.chat import CharChat, ChatFormat, HFChat
from teamtune.inference.engine import Completion, RolloutEngine, Sampling
from teamtune.inference.placement import EngineFactory, Placement
from teamtune.inference.scripted import ScriptedEngine
from teamtune.inference.transformers import TransformersEngine

__all__ = [
    "CharChat",
    "ChatFormat",
    "Completion",
    "EngineFactory",
    "HFChat",
    "Placement",
    "RolloutEngine",
    "Sampling",
    "ScriptedEngine",
    "TransformersEngine",
]
