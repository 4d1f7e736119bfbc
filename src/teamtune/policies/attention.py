"""Attention over packed rows that computes what is visible and nothing else.

On a CPU a prompt and its candidates see themselves, the candidates then see the prompt, all at
once, and the two are merged by their log-sum-exps. On a GPU it is one call of torch's
variable-length attention. Memory grows with the length of a row, not with its square. Where
neither works, and for short rows, it is torch's own behind a dense mask.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from teamtune.policies.layout import Layout, Part, Sequences

NAME = "visible"
"""What transformers knows `attend` by; its keyword `packed` holds the Layout."""
SHORT = 256
"""Rows of so many tokens take less time behind a dense mask on a CPU: few calls instead of many."""
FULL, SLIDING = "full_attention", "sliding_attention"

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def register() -> None:
    """Makes `attend` known to transformers, without a function for masks: none are made."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, attend)


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: None,
    *,
    packed: Layout,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """One layer's attention, [B, L, heads, width], of query, key and value [B, heads, L, width]."""
    window = window_of(module.config, module.layer_idx)
    query, key = query.to(value.dtype), key.to(value.dtype)  # autocast leaves norms in float32
    on_cpu = value.device.type == "cpu"
    served = value.shape[2] > SHORT if on_cpu else _flash(value)
    if not served or query.shape[-1] != value.shape[-1]:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        mask = packed.mask(value.dtype, window)
        return sdpa_attention_forward(module, query, key, value, mask, scaling=scaling)
    query, key, value = (x.transpose(1, 2).flatten(0, 1) for x in (query, key, value))
    if on_cpu:
        out: Any = _InParts.apply(query, key, value, packed.parts(window), scaling)
    else:
        out = _in_one_call(query, key, value, packed.sequences, scaling, window)
    return out.unflatten(0, packed.batch.input_ids.shape), None


def window_of(config: Any, layer: int) -> int | None:
    """How many of the latest positions a layer's query sees, its own among them; None: all."""
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    return window if not kinds or kinds[layer] == SLIDING else None


def _flash(value: Tensor) -> bool:
    """Whether torch's variable-length attention runs here."""
    return (
        value.is_cuda
        and value.dtype in (torch.bfloat16, torch.float16)
        and value.shape[-1] % 8 == 0
        and value.shape[-1] <= 256
        and torch.cuda.get_device_capability(value.device) >= (8, 0)
    )


def _in_one_call(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sequences: Sequences,
    scale: float | None,
    window: int | None,
) -> Tensor:
    """On a GPU: [tokens, heads, width] of rows one behind the other; padding stays 0."""
    from torch.nn.attention.varlen import varlen_attn

    seen: Any = varlen_attn(
        query[sequences.queries],
        key[sequences.keys],
        value[sequences.keys],
        sequences.query_ends,
        sequences.key_ends,
        sequences.longest_query,
        sequences.longest_key,
        scale=scale,
        window_size=(-1 if window is None else window - 1, 0),
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return torch.zeros_like(query).index_copy(0, sequences.queries, seen)


class _InParts(torch.autograd.Function):
    """The same on a CPU. A part's gradient follows from the merged output and log-sum-exp alone."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, parts: list[Part], scale: float | None
    ) -> Tensor:
        out = torch.zeros(query.shape, dtype=query.dtype)
        exact = torch.promote_types(query.dtype, torch.float32)
        lse = torch.zeros(query.shape[:2], dtype=exact)
        for part in parts:
            heads = _rows_of_heads(part, query, key)
            rows = [_by_head(query, part.queries, heads)]
            rows += [_by_head(x, part.keys, x.shape[1]) for x in (key, value)]
            mask = part.mask(query.dtype)
            pair = _forward(*rows, 0.0, part.causal, attn_mask=mask, scale=scale)
            seen, own = (_by_token(x, part.queries).index_select(0, part.slots) for x in pair)
            if part.merged:
                before = lse.index_select(0, part.tokens)
                both = torch.logaddexp(before, own)
                seen = seen * (own - both).exp()[..., None]
                seen += out.index_select(0, part.tokens) * (before - both).exp()[..., None]
                own = both
            out.index_copy_(0, part.tokens, seen.to(out.dtype))
            lse.index_copy_(0, part.tokens, own)
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.parts, ctx.scale = parts, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, out, lse = ctx.saved_tensors
        sums = [torch.zeros(x.shape, dtype=lse.dtype) for x in (query, key, value)]
        for part in ctx.parts:
            heads = _rows_of_heads(part, query, key)
            # Filling sees with weight exp(score - inf) = 0, and so nothing comes back from it.
            own = lse.new_full((part.queries.numel(), lse.shape[1]), math.inf)
            own.index_copy_(0, part.slots, lse.index_select(0, part.tokens))
            rows = [_by_head(x, part.queries, heads) for x in (grad, query)]
            rows += [_by_head(x, part.keys, x.shape[1]) for x in (key, value)]
            rows += [_by_head(out, part.queries, heads)]
            grads = _backward(
                *rows,
                _heads_first(own.unflatten(0, part.queries.shape), heads),
                0.0,
                part.causal,
                attn_mask=part.mask(query.dtype),
                scale=ctx.scale,
            )
            for total, index, new in zip(sums, (part.queries, part.keys, part.keys), grads):
                total.index_add_(0, index.flatten(), _by_token(new, index).to(total.dtype))
        return *(total.to(query.dtype) for total in sums), None, None


def _rows_of_heads(part: Part, query: Tensor, key: Tensor) -> int:
    """Heads that share keys are one long row of queries where all see all: larger products."""
    return key.shape[1] if part.merged else query.shape[1]


def _by_head(x: Tensor, index: Tensor, rows: int) -> Tensor:
    """Of [tokens, heads, width] the tokens `index` [n, W]: [n, rows, W * heads / rows, width]."""
    return _heads_first(x.index_select(0, index.flatten()).unflatten(0, index.shape), rows)


def _heads_first(x: Tensor, rows: int) -> Tensor:
    return x.unflatten(2, (rows, -1)).transpose(1, 2).flatten(2, 3)


def _by_token(x: Tensor, index: Tensor) -> Tensor:
    """Back again: [n * W, heads, ...], in the order of `index` [n, W]."""
    return x.unflatten(2, (index.shape[1], -1)).transpose(1, 2).flatten(2, 3).flatten(0, 1)
