"""The page that shows rollouts: one file that holds its data and fetches nothing."""

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TEMPLATE = Path(__file__).with_name("page.html")
PLACE = "SAMPLES\n"
"""Where the samples go, in a script element that holds data."""
TEXTS = ("prompt", "text", "state", "after")
"""Fields of a rollout that may be long, and are often equal."""


class Page:
    """The newest samples of a run, each the rollouts of a task at a rollout step.

    `samples` is plain text, one JSON object each, and what a checkpoint has to remember.
    """

    def __init__(self, count: int = 50, size: int = 20_000_000):
        """
        Args:
            count: Samples that are kept.
            size: Characters that are kept, but for the newest sample, which always is.
        """
        self.count = count
        self.size = size
        self.samples: list[str] = []

    def add(self, step: int, rollouts: Sequence[dict[str, Any]]) -> None:
        """Takes the rollouts of one task, made `plain`; the oldest samples go where it is full."""
        texts: dict[str, int] = {}
        packed = [_packed(rollout, texts) for rollout in rollouts]
        sample = {"step": step, "task": rollouts[0]["task"], "rollouts": packed}
        written = json.dumps({**sample, "texts": list(texts)}, separators=(",", ":"))
        self.samples.append(written.replace("<", "\\u003c"))  # no answer can end the element
        while len(self.samples) > 1 and self._full():
            del self.samples[0]

    def _full(self) -> bool:
        return len(self.samples) > self.count or sum(map(len, self.samples)) > self.size

    def write(self, path: Path) -> None:
        """Replaces the file at `path` at once, so that a reader never sees half of it."""
        head, tail = TEMPLATE.read_text(encoding="utf-8").split(PLACE)
        aside = path.with_name(f".{path.name}")
        try:
            aside.write_text(head + ",\n".join(self.samples) + "\n" + tail, encoding="utf-8")
            os.replace(aside, path)
        finally:
            aside.unlink(missing_ok=True)


def _packed(value: Any, texts: dict[str, int], field: str = "") -> Any:
    """`value` with a number in place of each long text, and numbers as JSON can have them."""
    if isinstance(value, str) and field in TEXTS:
        return texts.setdefault(value, len(texts))
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {name: _packed(part, texts, name) for name, part in value.items()}
    return [_packed(part, texts) for part in value] if isinstance(value, list) else value
