"""Packing: groups become rows in which all answers to a prompt share one copy of it.

A row is [prompt | candidate 1 | ... | candidate K], padded on the right. A candidate sees the
prompt and itself; its positions continue the prompt's. The last token of a candidate predicts
nothing, so it is scored but not fed. Candidates that are equal in all that a loss sees are packed
once and weigh as much as all of them.
"""

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from teamtune.experience.records import Candidate, Group
from teamtune.inference import Completion

PADDING = -1


@dataclass
class PackedBatch:
    """Rows [B, L] and, for their N response tokens in row order, what a loss needs [N]."""

    input_ids: Tensor
    position_ids: Tensor
    lengths: list[list[int]]
    """Of each row how many tokens its prompt feeds, and each of its candidates."""
    segments: Tensor
    """[B, L]: 0 for the prompt, k for the k-th candidate of the row, -1 for padding."""
    predicted_from: Tensor
    """[N] index into the flattened rows of the position whose output predicts each token."""
    targets: Tensor
    sampling_logprobs: Tensor
    advantages: Tensor
    weight: Tensor
    """[N] sum of the weights of the candidates that a token stands for; 0 in a placeholder."""
    count: Tensor
    """[N] their number; 0 in a placeholder."""
    sequence: Tensor
    """[N] which answer of the batch a token is of, from 0."""
    answers: tuple[Candidate, ...]
    """Those answers, one for all that are equal."""

    def attention_mask(self, dtype: torch.dtype, window: int | None = None) -> Tensor:
        """[B, 1, L, L] additive: 0 where a query (third axis) may see a key, else the least number.

        Additive because eager attention silently adds a boolean mask. Only padding sees padding.

        Args:
            dtype: Its number format.
            window: How many of the latest positions a query sees, its own among them; None: all.
        """
        segments, length = self.segments, self.segments.shape[1]
        query, key = segments[:, :, None], segments[:, None, :]
        index = torch.arange(length, device=segments.device)
        causal = index[:, None] >= index[None, :]
        visible = causal & ((key == 0) | (key == query)) & (key != PADDING)
        if window is not None:
            visible &= self.position_ids[:, :, None] - self.position_ids[:, None, :] < window
        visible |= index[:, None] == index[None, :]
        mask = torch.zeros(visible.shape, dtype=dtype, device=segments.device)
        return mask.masked_fill_(~visible, torch.finfo(dtype).min)[:, None]

    def to(self, device: torch.device) -> "PackedBatch":
        """The same batch on `device`."""
        moved: dict[str, Any] = {
            n: x.to(device) for n, x in vars(self).items() if isinstance(x, Tensor)
        }
        return replace(self, **moved)

    @property
    def num_tokens(self) -> int:
        """B * L, padding included: what the token budget limits."""
        return self.input_ids.numel()


@dataclass
class _Row:
    prompt_ids: tuple[int, ...]
    candidates: list[Candidate]
    """Different ones."""
    weights: list[float]
    counts: list[int]

    @property
    def length(self) -> int:
        return len(self.prompt_ids) + sum(len(c.token_ids) - 1 for c in self.candidates)


def pack(
    groups: Sequence[Group], token_budget: int, idle: Sequence[Group] | None = None
) -> list[PackedBatch]:
    """Micro-batches of at most `token_budget` tokens (rows x longest row), padding included.

    Candidates that failed or sampled nothing are left out; so are those that weigh nothing, unless
    `idle` is given: then they are packed too, and with them the groups in it, at weight 0. Groups
    of one task with one prompt, such as the first turns of episodes, share it. Where the answers to
    a prompt exceed the budget, they are split; a single one that exceeds it gets a batch of its
    own. Rows of like length share a batch, so that little is padded; the order does not matter to a
    summed loss.
    """
    alike: dict[tuple, list[tuple[Candidate, float]]] = defaultdict(list)
    for group in groups:
        alike[group.key.task, group.prompt_ids] += _weights(group, idle is not None)
    for group in idle or ():
        alike[group.key.task, group.prompt_ids] += _weights(group, True, 0.0)
    rows = [
        row
        for (_, prompt), answers in alike.items()
        for row in _rows(prompt, answers, token_budget)
    ]
    rows.sort(key=lambda r: r.length)
    batches: list[PackedBatch] = []
    pending: list[_Row] = []
    for row in rows:
        if pending and (len(pending) + 1) * row.length > token_budget:
            batches.append(_build(pending))
            pending = []
        pending.append(row)
    if pending:
        batches.append(_build(pending))
    return batches


def placeholder(prompt_ids: Sequence[int] = (0,)) -> PackedBatch:
    """A batch of one token that weighs nothing, for a rank that has no more to compute."""
    nothing = Candidate(Completion((0,), (0.0,), "", "stop", 0), "scored", advantage=0.0)
    return _build([_Row(tuple(prompt_ids), [nothing], [0.0], [0])])


def sampled_candidates(group: Group) -> list[Candidate]:
    """Those that were scored and hold tokens."""
    return [c for c in group.candidates if c.status == "scored" and c.token_ids]


def _weights(group: Group, all_: bool, scale: float = 1.0) -> list[tuple[Candidate, float]]:
    """The candidates to pack, each with its weight."""
    sampled = sampled_candidates(group)
    return [(c, scale * c.weight) for c in sampled if c.weight or all_]


def _rows(
    prompt_ids: tuple[int, ...], candidates: Sequence[tuple[Candidate, float]], token_budget: int
) -> list[_Row]:
    different: dict[tuple, tuple[Candidate, float, int]] = {}
    for candidate, weight in candidates:
        key = (candidate.token_ids, candidate.sampling_logprobs, _advantages(candidate))
        first, known, count = different.get(key, (candidate, 0.0, 0))
        different[key] = (first, known + weight, count + 1)
    rows: list[_Row] = []
    for candidate, weight, count in different.values():
        extra = len(candidate.token_ids) - 1
        if not rows or rows[-1].length + extra > token_budget:
            rows.append(_Row(prompt_ids, [], [], []))
        rows[-1].candidates.append(candidate)
        rows[-1].weights.append(weight)
        rows[-1].counts.append(count)
    return rows


def _advantages(candidate: Candidate) -> tuple[float, ...]:
    """One per token."""
    if isinstance(candidate.advantage, Sequence):
        assert len(candidate.advantage) == len(candidate.token_ids)
        return tuple(candidate.advantage)
    return (candidate.advantage or 0.0,) * len(candidate.token_ids)


def _build(rows: Sequence[_Row]) -> PackedBatch:
    length = max(row.length for row in rows)
    ids = np.zeros((len(rows), length), dtype=np.int64)
    positions = np.zeros_like(ids)
    segments = np.full_like(ids, PADDING)
    count = np.arange(length)
    predicted_from = []
    for i, row in enumerate(rows):
        at = p = len(row.prompt_ids)
        ids[i, :p], positions[i, :p], segments[i, :p] = row.prompt_ids, count[:p], 0
        for k, candidate in enumerate(row.candidates, start=1):
            end = at + len(candidate.token_ids) - 1
            ids[i, at:end] = candidate.token_ids[:-1]
            positions[i, at:end] = count[p : p + end - at]
            segments[i, at:end] = k
            predicted_from += [i * length + p - 1, *range(i * length + at, i * length + end)]
            at = end
    answers = [c for row in rows for c in row.candidates]
    lengths = [len(c.token_ids) for c in answers]
    weights = [np.float32(w) for row in rows for w in row.weights]
    counts = [np.float32(n) for row in rows for n in row.counts]
    chain = itertools.chain.from_iterable
    logprobs = np.fromiter(chain(c.sampling_logprobs for c in answers), dtype=np.float32)
    advantages = np.fromiter(chain(_advantages(c) for c in answers), dtype=np.float32)
    return PackedBatch(
        lengths=[
            [len(row.prompt_ids), *(len(c.token_ids) - 1 for c in row.candidates)] for row in rows
        ],
        input_ids=torch.from_numpy(ids),
        position_ids=torch.from_numpy(positions),
        segments=torch.from_numpy(segments),
        predicted_from=torch.from_numpy(np.array(predicted_from)),
        targets=torch.from_numpy(np.fromiter(chain(c.token_ids for c in answers), dtype=np.int64)),
        sampling_logprobs=torch.from_numpy(logprobs),
        advantages=torch.from_numpy(advantages),
        weight=torch.from_numpy(np.repeat(weights, lengths)),
        count=torch.from_numpy(np.repeat(counts, lengths)),
        sequence=torch.from_numpy(np.repeat(np.arange(len(answers)), lengths)),
        answers=tuple(answers),
    )
