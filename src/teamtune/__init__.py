"""teamtune trains teams of language-model agents with reinforcement learning."""

__version__ = "0.1.0"
