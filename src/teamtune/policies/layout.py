"""Which tokens of a batch see which: packed rows as lists of queries and the keys that they see.

A row is [prompt | candidate 1 | ... | candidate K]; each of them sees itself, causally, and a
candidate its prompt. Indices count tokens in the flattened rows.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from teamtune.experience.packing import PackedBatch

Indices = NDArray[np.int64]


class Sequences(NamedTuple):
    """Prompts and candidates one behind the other, for one call of variable-length attention.

    A candidate's keys are its prompt's and its own. Queries and keys end together, which is where
    flash attention aligns its causal mask.
    """

    queries: Tensor
    keys: Tensor
    query_ends: Tensor
    """int32, 0 first."""
    key_ends: Tensor
    longest_query: int
    longest_key: int


@dataclass(frozen=True)
class Part:
    """n blocks of at most W queries with M keys each, for one call on a CPU."""

    queries: Tensor
    """[n, W]; a shorter block is filled up with any index."""
    keys: Tensor
    """[n, M]"""
    slots: Tensor
    """Which of the n * W are no filling."""
    visible: Tensor | None
    """[W, M] where neither all keys are seen nor just the earlier ones."""
    causal: bool
    merged: bool
    """Whether the queries have seen other keys in an earlier part."""

    @property
    def tokens(self) -> Tensor:
        """The queries without the filling."""
        return self.queries.flatten()[self.slots]

    def mask(self, dtype: torch.dtype) -> Tensor | None:
        """`visible` as scaled-dot-product attention adds it, [1, 1, W, M]."""
        if self.visible is None:
            return None
        mask = torch.zeros(1, 1, *self.visible.shape, dtype=dtype)
        return mask.masked_fill_(~self.visible, torch.finfo(dtype).min)


class Layout:
    """A batch's queries and keys, made once and used by every layer."""

    def __init__(self, batch: "PackedBatch"):
        self.batch = batch
        self._parts: dict[int | None, list[Part]] = {}
        self._masks: dict[int | None, Tensor] = {}

    @cached_property
    def sequences(self) -> Sequences:
        """All of a layer, whatever its window."""
        pairs = [pair for row in self._rows() for pair in _segments(*row)]
        queries = [part for _, part in pairs]
        keys = [np.concatenate(pair) for pair in pairs]
        device = self.batch.input_ids.device
        tokens, seen = (torch.from_numpy(np.concatenate(x)).to(device) for x in (queries, keys))
        sizes = [[len(block) for block in blocks] for blocks in (queries, keys)]
        ends = [torch.tensor([0, *itertools.accumulate(x)]).int().to(device) for x in sizes]
        return Sequences(tokens, seen, ends[0], ends[1], max(sizes[0]), max(sizes[1]))

    def parts(self, window: int | None) -> list[Part]:
        """All of a layer in which a query sees the latest `window` positions, its own among them.

        Without a window, or within it, candidates see their prompt in a part of its own, all those
        of a row at once. Blocks of like length share a part.
        """
        if window not in self._parts:
            alike = defaultdict(list)
            for queries, before, itself in self._blocks(window):
                alike[not itself, len(before), _width(len(queries))].append((queries, before))
            self._parts[window] = [
                _part(alike[key], key[2], window, merged=key[0]) for key in sorted(alike)
            ]
        return self._parts[window]

    def mask(self, dtype: torch.dtype, window: int | None) -> Tensor:
        """The dense one, for devices and number formats that have no better way."""
        if window not in self._masks:
            self._masks[window] = self.batch.attention_mask(dtype, window)
        return self._masks[window]

    def _rows(self) -> Iterator[tuple[Indices, list[Indices]]]:
        """Of each row the tokens of its prompt and of its candidates."""
        for i, lengths in enumerate(self.batch.lengths):
            ends = i * self.batch.input_ids.shape[1] + np.cumsum([0, *lengths])
            prompt, *answers = (np.arange(*pair) for pair in itertools.pairwise(ends))
            yield prompt, [answer for answer in answers if len(answer)]

    def _blocks(self, window: int | None) -> Iterator[tuple[Indices, Indices, bool]]:
        """Queries, keys before them, and whether they see themselves."""
        for prompt, answers in self._rows():
            longest = len(prompt) + max(map(len, answers), default=0)
            if window is None or longest <= window:
                yield from ((part, prompt[:0], True) for part in (prompt, *answers))
                if answers:
                    yield np.concatenate(answers), prompt, False
                continue
            step = -(-window // 4)
            for before, part in _segments(prompt, answers):
                seen = np.concatenate([before, part])
                for at in range(len(before), len(seen), step):
                    yield seen[at : at + step], seen[max(0, at + 1 - window) : at], True


def _segments(prompt: Indices, answers: list[Indices]) -> Iterator[tuple[Indices, Indices]]:
    """What comes before, and what is itself a causal sequence."""
    yield prompt[:0], prompt
    yield from ((prompt, answer) for answer in answers)


def _width(length: int) -> int:
    """`length` or up to an eighth more, so that few widths occur."""
    step = max(16, 1 << max(0, length.bit_length() - 4))
    return -(-length // step) * step


def _part(
    blocks: Sequence[tuple[Indices, Indices]], width: int, window: int | None, merged: bool
) -> Part:
    queries = np.zeros((len(blocks), width), dtype=np.int64)
    real = np.zeros(queries.shape, dtype=bool)
    for i, (block, _) in enumerate(blocks):
        queries[i, : len(block)], real[i, : len(block)] = block, True
    before = np.stack([keys for _, keys in blocks])
    visible = None
    if not merged and before.size:
        assert window is not None
        ago = np.arange(width)[:, None] - np.arange(-before.shape[1], width)
        visible = torch.from_numpy((ago >= 0) & (ago < window))
    return Part(
        queries=torch.from_numpy(queries),
        keys=torch.from_numpy(before if merged else np.concatenate([before, queries], 1)),
        slots=torch.from_numpy(np.flatnonzero(real)),
        visible=visible,
        causal=not merged and visible is None,
        merged=merged,
    )
