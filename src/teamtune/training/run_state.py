"""What a run is made of beside its weights: what checkpoints remember, and what a session holds."""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from teamtune.inference import RolloutEngine
from teamtune.inference.placement import close


@dataclass
class RunState:
    """What a resumed run must know. The TeamModule alone writes it."""

    rollout_step: int = 0
    """Steps taken; the x-axis of everything."""
    warm_started: bool = False
    moved: dict[str, int] = field(default_factory=dict)
    """Steps in which each policy's optimizer moved, and with it its schedule."""
    training_tokens: int = 0
    """Tokens generated for training so far, over all ranks."""
    run_id: str | None = None
    """The MLflow run, so that a resumed run stays one run."""
    elapsed: float = 0.0
    """Seconds of training and evaluation in earlier sessions."""
    started: float = field(default_factory=time.monotonic)
    """When this session began, by the monotonic clock."""

    @property
    def seconds(self) -> float:
        """Wall time of the run, earlier sessions included."""
        return self.elapsed + time.monotonic() - self.started

    def state_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "rollout_step": self.rollout_step,
            "warm_started": self.warm_started,
            "moved": dict(self.moved),
            "training_tokens": self.training_tokens,
            "run_id": self.run_id,
            "seconds": self.seconds,
        }

    @classmethod
    def restored(cls, state: dict[str, Any]) -> "RunState":
        """From what `state_dict` gave; its clock goes on from now."""
        return cls(
            state["rollout_step"],
            state["warm_started"],
            dict(state["moved"]),
            state["training_tokens"],
            state["run_id"],
            state["seconds"],
        )


@dataclass
class Session:
    """What belongs to this process for as long as it runs, and to no checkpoint."""

    run_dir: Path = Path(".")
    engines: dict[str, RolloutEngine] = field(default_factory=dict)
    """By policy; several policies may have one engine."""
    temperature: float = 1.0
    """At which experience is sampled, and therefore scored."""
    runner: asyncio.Runner | None = None
    """Whose event loop all rollouts share."""
    locks: list[BinaryIO] = field(default_factory=list)
    """On the folders that no other process may train on."""

    def close(self) -> None:
        """Ends the engines and the event loop."""
        close(self.engines)
        self.engines = {}
        if self.runner is not None:
            with suppress(KeyboardInterrupt):  # the one that ended the run, out of its tasks again
                self.runner.close()
            self.runner = None
        for lock in self.locks:
            lock.close()
        self.locks = []
