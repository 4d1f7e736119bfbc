"""The joint reward of two texts: five levels, each worth something only where the one before is.

Pure functions on words. What trains a team and what is reported of it are this one function.
Source: LLM Collaboration with MARL (arXiv 2508.04652), writing tasks.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from teamtune.envs.writing.vocabulary import STOP_WORDS, TRANSITIONS
from teamtune.errors import ConfigError, nearest

Band = tuple[float, float, float | None, float | None]
"""Where a ratio is worth nothing, everything, everything and nothing again, ascending; the last two
are null where more is never too much."""

WEIGHTS: Mapping[str, float] = {
    "structure": 0.5,
    "length_ratio": 1.0,
    "unique_ratio": 0.5,
    "style": 0.6,
    "coherence": 0.4,
}
"""The levels in the order in which they are passed, and what each is worth in the paper."""

_LETTER = "[0-9A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f]"
_WORD = re.compile(f"{_LETTER}+(?:['’_]{_LETTER}+)*")
_KINDS = {
    kind: re.compile(
        r"\b(?:" + "|".join(p.replace(" ", r"\s+") for p in phrases) + r")\b", re.IGNORECASE
    )
    for kind, phrases in TRANSITIONS.items()
}


def words(text: str) -> list[str]:
    """The words of a text in lower case: runs of Latin letters and digits, apostrophes inside.

    The rewards are about English; other scripts and punctuation hold no words.
    """
    return [word.replace("’", "'") for word in _WORD.findall(text.lower())]


def transitions(text: str) -> set[str]:
    """The kinds of transition that a text makes, each by a whole phrase of its list."""
    return {kind for kind, phrases in _KINDS.items() if phrases.search(text)}


def similarity(first: set[str], second: set[str]) -> float:
    """Jaccard similarity, shared over all members; 0 for two empty sets."""
    union = first | second
    return len(first & second) / len(union) if union else 0.0


def height(ratio: float, band: Band) -> float:
    """How much of a level `ratio` earns: 1 inside the band, falling linearly to 0 at its ends."""
    low, full, still_full, high = band
    if ratio < full:
        return max(0.0, (ratio - low) / (full - low))
    if still_full is not None and high is not None and ratio > still_full:
        return max(0.0, (high - ratio) / (high - still_full))
    return 1.0


def _ascends(band: Band) -> bool:
    low, full, still_full, high = band
    if still_full is None or high is None:
        return 0 <= low < full < math.inf and still_full is high
    return 0 <= low < full <= still_full < high < math.inf


@dataclass(frozen=True)
class Levels:
    """Thresholds and weights of the five levels.

    The largest total is the sum of the weights. It can be reached: no level in full excludes
    another under the paper's thresholds (a test holds up a pair of texts for each task).

    Raises:
        ConfigError: A threshold or weight with which the levels make no sense.
    """

    min_words: int
    max_words: int
    length_ratio: Band
    unique_ratio: Band
    style_cap: float
    coherent: Literal["second", "both"]
    """Whose transitions count: those of the second text, or of the two together."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Weights by level; what is left out keeps the paper's."""

    def __post_init__(self) -> None:
        if self.min_words > self.max_words:
            raise ConfigError(
                f"min_words: got {self.min_words}, allowed: max_words, {self.max_words}, or less"
            )
        for name in ("length_ratio", "unique_ratio"):
            if not _ascends(getattr(self, name)):
                raise ConfigError(
                    f"{name}: got {list(getattr(self, name))}, allowed: four numbers that ascend "
                    "from 0 or more; the middle ones may be equal, and the last two null"
                )
        for name in self.weights:
            if name not in WEIGHTS:
                raise ConfigError(
                    f"weights.{name}: unknown level{nearest(name, WEIGHTS)}, "
                    f"allowed: {', '.join(WEIGHTS)}"
                )
        object.__setattr__(self, "weights", {**WEIGHTS, **self.weights})
        if not any(self.weights.values()):
            raise ConfigError("weights: got 0 for every level, allowed: one above 0")

    def earned(self, first: str, second: str) -> Iterator[float]:
        """How much of each level in turn the pair earns, 0 to 1; do not read on after a 0."""
        one, two = words(first), words(second)
        yield float(all(self.min_words <= len(text) <= self.max_words for text in (one, two)))
        yield height(len(second) / len(first), self.length_ratio)
        yield height(len(set(two)) / len(set(one)), self.unique_ratio)
        alike = similarity(set(one) - STOP_WORDS, set(two) - STOP_WORDS)
        yield min(alike, self.style_cap) / self.style_cap
        kinds = transitions(second) | (transitions(first) if self.coherent == "both" else set())
        yield math.log1p(len(kinds)) / math.log1p(len(TRANSITIONS))


def joint_reward(first: str, second: str, levels: Levels) -> dict[str, float]:
    """What each level gives to a pair of texts, by name, and their sum as `total`.

    Runs of white space count as one character: blank lines are no length.
    """
    first, second = (" ".join(text.split()) for text in (first, second))
    reward = dict.fromkeys(WEIGHTS, 0.0)
    for name, share in zip(WEIGHTS, levels.earned(first, second)):
        if not share:
            break
        reward[name] = levels.weights[name] * share
    return reward | {"total": sum(reward.values())}
