"""Attention over packed rows equals that behind the dense mask, and computes what is visible."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from factories import END, built_policy, candidate, group, model_folder, plain_logits, random_group
from teamtune.experience import Group
from teamtune.experience.packing import PADDING, PackedBatch, pack
from teamtune.policies import LoRA, Policy, attention
from teamtune.policies.attention import attend
from teamtune.policies.layout import Layout, _width

HUGE = 10**9
HEADS, KEY_HEADS, WIDTH = 4, 2, 8


@pytest.fixture(autouse=True, scope="module")
def nothing_is_short() -> Iterator[None]:
    """The rows of these tests are, and would be left to a dense mask."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "SHORT", 0)
        yield


def batch_of(*rows: Sequence[int]) -> PackedBatch:
    """Rows of a prompt of so many tokens and answers that feed so many."""
    groups = []
    for i, (prompt, *answers) in enumerate(rows):
        different = [candidate((3 + k, *[5] * n)) for k, n in enumerate(answers)]
        groups.append(group([4] * prompt, different, task=f"t{i}"))
    (batch,) = pack(groups, HUGE)
    return batch


def drawn(batch: PackedBatch, dtype: torch.dtype, key_heads: int = KEY_HEADS) -> list[Tensor]:
    """Query, key and value as a layer has them, and what comes back for its output."""
    torch.manual_seed(0)
    rows, length = batch.input_ids.shape
    shapes = [(rows, length, heads, WIDTH) for heads in (HEADS, key_heads, key_heads)]
    made = [torch.randn(shape, dtype=dtype).transpose(1, 2) for shape in shapes]
    return [*(x.requires_grad_() for x in made), torch.randn(shapes[0], dtype=dtype)]


def layer(window: int | None) -> Any:
    config = SimpleNamespace(sliding_window=window)
    return SimpleNamespace(
        config=config, layer_idx=0, is_causal=True, num_key_value_groups=HEADS // KEY_HEADS
    )


def visible(batch: PackedBatch, window: int | None, rows: list[Tensor]) -> list[Tensor]:
    """Output and gradients of `attend`."""
    *inputs, back = rows
    out, _ = attend(layer(window), *inputs, None, packed=Layout(batch), scaling=0.3)
    return [out, *torch.autograd.grad(out, inputs, back)]


def masked(batch: PackedBatch, window: int | None, rows: list[Tensor]) -> list[Tensor]:
    """The same by the definition; padding, which sees padding there, is cleared."""
    query, key, value, back = rows
    groups = query.shape[1] // key.shape[1]
    scores = 0.3 * query @ key.repeat_interleave(groups, 1).transpose(2, 3)
    weights = (scores + batch.attention_mask(query.dtype, window)).softmax(-1)
    out = (weights @ value.repeat_interleave(groups, 1)).transpose(1, 2)
    out = out * (batch.segments != PADDING)[..., None, None]
    return [out, *torch.autograd.grad(out, (query, key, value), back)]


ROWS = st.lists(
    st.tuples(st.integers(1, 40), st.lists(st.integers(0, 40), min_size=1, max_size=4)).map(
        lambda row: (row[0], *row[1])
    ),
    min_size=1,
    max_size=4,
)


@given(ROWS, st.one_of(st.none(), st.integers(1, 60)), st.sampled_from([1, 2, 4]))
@settings(max_examples=80, deadline=None)
def test_any_rows_attend_as_behind_the_dense_mask(
    rows: list[tuple[int, ...]], window: int | None, key_heads: int
):
    batch = batch_of(*rows)
    inputs = drawn(batch, torch.float64, key_heads)
    for own, other in zip(visible(batch, window, inputs), masked(batch, window, inputs)):
        torch.testing.assert_close(own, other, atol=1e-12, rtol=0)


@pytest.mark.parametrize("window", [None, 4])
def test_bfloat16_attends_within_its_rounding(window: int | None):
    batch = batch_of((37, 20, 0, 33), (5, 8))
    inputs = drawn(batch, torch.float32)
    low = [x.detach().bfloat16().requires_grad_() for x in inputs]
    for own, other in zip(visible(batch, window, low), masked(batch, window, inputs)):
        assert own.dtype == torch.bfloat16
        torch.testing.assert_close(own.float(), other, atol=0.06, rtol=0.03)


@pytest.mark.parametrize("short", [30, 31])
def test_short_rows_are_left_to_a_dense_mask(monkeypatch, short: int):
    monkeypatch.setattr(attention, "SHORT", short)
    batch = batch_of((20, 5, 6))
    *inputs, back = drawn(batch, torch.float64)
    packed = Layout(batch)
    out, _ = attend(layer(12), *inputs, None, packed=packed, scaling=0.3)
    assert bool(packed._masks) == (short == 31) and bool(packed._parts) == (short == 30)
    own = [out, *torch.autograd.grad(out, inputs, back)]
    for one, other in zip(own, masked(batch, 12, [*inputs, back])):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0)


def test_padding_and_filling_take_nothing_and_give_nothing():
    batch = batch_of((3, 2), (20, 17, 30))
    inputs = drawn(batch, torch.float64)
    padding = batch.segments == PADDING
    with torch.no_grad():
        for x in inputs[:3]:
            x.transpose(1, 2)[padding] = 1e6
    out, *grads = visible(batch, None, inputs)
    for x in (out, *(grad.transpose(1, 2) for grad in grads)):
        assert x.isfinite().all() and x[padding].abs().max() == 0 and x[~padding].abs().max() > 0


def variable_length(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_ends: Tensor,
    key_ends: Tensor,
    longest_query: int,
    longest_key: int,
    *,
    scale: float,
    window_size: tuple[int, int],
    enable_gqa: bool,
) -> Tensor:
    """torch.nn.attention.varlen.varlen_attn as documented, one sequence after the other."""
    assert query_ends.dtype == key_ends.dtype == torch.int32 and window_size[1] == 0
    assert enable_gqa == (query.shape[1] != key.shape[1])
    sizes = query_ends.diff().tolist(), key_ends.diff().tolist()
    assert (max(sizes[0]), max(sizes[1])) == (longest_query, longest_key)
    pieces = []
    for q, k, v in zip(query.split(sizes[0]), key.split(sizes[1]), value.split(sizes[1])):
        ago = torch.arange(len(q))[:, None] + len(k) - len(q) - torch.arange(len(k))
        mask = (ago >= 0) & ((ago <= window_size[0]) | (window_size[0] < 0))
        rows = [x.transpose(0, 1)[None] for x in (q, k, v)]
        out = F.scaled_dot_product_attention(*rows, attn_mask=mask, scale=scale, enable_gqa=True)
        pieces.append(out[0].transpose(0, 1))
    return torch.cat(pieces)


@pytest.mark.parametrize("window", [None, 1, 7, 30])
def test_one_call_of_variable_length_attention_sees_the_same(monkeypatch, window: int | None):
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", variable_length)
    batch = batch_of((3, 2), (20, 17, 0, 30), (1, 0), (1, 6))
    *inputs, back = drawn(batch, torch.float64)
    rows = [x.transpose(1, 2).flatten(0, 1) for x in inputs]
    out = attention._in_one_call(*rows, Layout(batch).sequences, 0.3, window)
    out = out.unflatten(0, batch.input_ids.shape)
    own = [out, *torch.autograd.grad(out, inputs, back)]
    for one, other in zip(own, masked(batch, window, [*inputs, back])):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0)


def test_a_candidates_keys_are_its_prompts_and_its_own():
    sequences = Layout(batch_of((1, 1), (2, 0, 1, 2))).sequences
    assert sequences.queries.tolist() == [0, 1, 5, 6, 7, 8, 9]
    assert sequences.query_ends.tolist() == [0, 1, 2, 4, 5, 7]
    assert sequences.keys.tolist() == [0, 0, 1, 5, 6, 5, 6, 7, 5, 6, 8, 9]
    assert sequences.key_ends.tolist() == [0, 1, 3, 5, 8, 12]
    assert (sequences.longest_query, sequences.longest_key) == (2, 4)


class Work(TorchDispatchMode):
    """Pairs of tokens that each head scores in the forward pass, and the largest tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs, self.largest = 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default:
            (n, rows, queries, _), keys = args[0].shape, args[1].shape[2]
            causal = len(args) > 4 and args[4]
            seen = queries * (queries + 1) // 2 if causal else queries * keys
            self.pairs += n * rows * seen // HEADS
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(tensor, Tensor):
                self.largest = max(self.largest, tensor.numel())
        return out


def work(batch: PackedBatch, window: int | None = None) -> Work:
    inputs = drawn(batch, torch.float32)
    with Work() as counted:
        visible(batch, window, inputs)
    return counted


def pairs(batch: PackedBatch) -> int:
    return int((batch.attention_mask(torch.float32)[:, 0] == 0)[batch.segments != PADDING].sum())


def test_what_is_scored_is_what_is_visible():
    even = batch_of((64, *[32] * 4), (64, *[32] * 4))
    assert work(even).pairs == pairs(even) == 2 * (64 * 65 // 2 + 4 * (32 * 64 + 32 * 33 // 2))
    rng = random.Random(0)
    for _ in range(5):
        ragged = batch_of(
            *((rng.randint(50, 300), *(rng.randint(20, 200) for _ in range(4))) for _ in range(3))
        )
        assert pairs(ragged) <= work(ragged).pairs <= 1.15 * pairs(ragged)


def test_a_window_is_scored_with_a_third_more_than_it_has():
    length, window = 2048, 64
    counted = work(batch_of((length, 8)), window).pairs
    assert window * length * 0.9 < counted < 4 / 3 * window * length


@pytest.mark.parametrize("window", [None, 32])
def test_memory_grows_with_the_length_of_a_row(window: int | None):
    short, long = (work(batch_of((n, *[n] * 3)), window).largest for n in (256, 1024))
    assert 3.5 * short < long <= 4.1 * short


@given(st.integers(1, 10**6))
def test_a_width_is_at_most_an_eighth_or_fifteen_more(length: int):
    assert length <= _width(length) <= max(length + 15, length * 9 / 8)


TRAINING = {
    "plain": {},
    "checkpointed": {"gradient_checkpointing": True},
    "adapter": {"lora": LoRA(rank=2, alpha=8.0)},
    "checkpointed adapter": {"lora": LoRA(rank=2), "gradient_checkpointing": True},
}


def trained(folder: Path, **settings: Any) -> Policy:
    """A policy whose adapter, where it has one, is not 0."""
    policy = built_policy(folder, head_chunk=5, **settings)
    torch.manual_seed(1)
    with torch.no_grad():
        for name, weight in policy.scorer.named_parameters():
            if ".lora_B" in name:
                weight.normal_(std=0.1)
    return policy


def odd_groups() -> list[Group]:
    """One-token answers, one-token prompts, equal answers, and a group that will be split."""
    rng = random.Random(3)
    same = [candidate((7, 8, END), 0.5), candidate((7, 8, END), 0.5), candidate((END,), -1.0)]
    return [
        group((9,), same),
        group((5, 6), [candidate((END,), 1.0)]),
        *(random_group(rng, n, task=f"t{n}") for n in (2, 7)),
    ]


@pytest.mark.parametrize("settings", TRAINING.values(), ids=TRAINING)
@pytest.mark.parametrize("kind", ["llama", "mistral", "gemma3"])
def test_training_on_packed_rows_equals_one_row_per_candidate(
    tmp_path, monkeypatch, kind, settings
):
    folder, groups = model_folder(tmp_path, kind), odd_groups()
    packed = trained(folder, **settings)
    plain = trained(folder, **settings | {"gradient_checkpointing": False})
    monkeypatch.setattr(PackedBatch, "attention_mask", None)  # no mask is made
    batches = pack(groups, 20)
    assert sum(len(batch.input_ids) for batch in batches) == len(groups) + 1
    total = sum((packed(b)[0] * b.weight * b.advantages).sum() for b in batches)
    expected = torch.zeros(())
    for g in groups:
        for c in g.candidates:
            ids = torch.tensor(c.token_ids)[:, None]
            scores = plain_logits(plain, [*g.prompt_ids, *c.token_ids]).log_softmax(-1)
            expected = (
                expected + c.advantage * scores[len(g.prompt_ids) - 1 : -1].gather(1, ids).sum()
            )
    torch.testing.assert_close(total, expected, atol=1e-4, rtol=0)
    for loss in (total, expected):
        loss.backward()
    for own, other in zip(packed.trainable_parameters(), plain.trainable_parameters()):
        assert other.grad is not None and other.grad.abs().max() > 0
        torch.testing.assert_close(own.grad, other.grad, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma3"])
def test_autocast_computes_near_float32(tmp_path, kind):
    policy = built_policy(model_folder(tmp_path, kind))
    (batch,) = pack(odd_groups(), HUGE)
    exact = policy(batch)[0]
    with torch.autocast("cpu", torch.bfloat16):
        near = policy(batch)[0]
    near.sum().backward()
    assert 0 < (near - exact).abs().mean() < 0.05
    assert all(p.grad is not None for p in policy.trainable_parameters())


def test_a_model_that_caps_its_scores_keeps_the_dense_way_and_says_so(tmp_path):
    import transformers as hf

    torch.manual_seed(0)
    sizes = {"vocab_size": 30, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8}
    hf.Gemma2ForCausalLM(
        hf.Gemma2Config(**sizes, **heads, initializer_range=0.3, attn_logit_softcapping=2.0)
    ).save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match="visible does not compute that of a Gemma2ForCausalLM"):
        policy = built_policy(tmp_path)
    answer = candidate((7, 8, END))
    (batch,) = pack([group((9, 4), [answer, candidate((3, END))])], HUGE)
    plain = plain_logits(policy, (9, 4, *answer.token_ids)).log_softmax(-1)[1:-1]
    expected = plain.gather(1, torch.tensor(answer.token_ids)[:, None])[:, 0]
    torch.testing.assert_close(policy(batch)[0][:3], expected, atol=1e-5, rtol=0)
