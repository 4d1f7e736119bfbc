"""A plan of memory: by hand for a small model, against what a process takes, for known cards."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import LlamaConfig, Qwen3Config

from teamtune.training.memory import GIB, Learner, Shape, plan

TESTS = Path(__file__).parents[2]
SMALL = Shape(
    weights=1000,
    inner=800,
    layers=2,
    hidden=10,
    intermediate=30,
    query=20,
    key=10,
    vocabulary=7,
    norms=False,
)


def learner(**settings) -> Learner:
    given = {
        "shape": SMALL,
        "trained": 1000,
        "remembered": 2.0,
        "scratch": 0.0,
        "copies": 1,
        "token_budget": 100,
        "head_chunk": 5,
        "head_kept": 0.0,
        "checkpointing": False,
    }
    return Learner(**{**given, **settings})


def test_a_shape_is_read_off_a_configuration():
    small = LlamaConfig(
        vocab_size=7,
        hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    # a block: q and o 8 * 8, k and v 8 * 4, three of 8 * 16, two norms of 8
    inner = 2 * (2 * 64 + 2 * 32 + 3 * 128 + 2 * 8)
    assert Shape.of(small) == Shape(inner + 7 * 8 + 8, inner, 2, 8, 16, 8, 4, 7, False)
    assert Shape.of(Qwen3Config(**{**small.to_dict(), "model_type": "qwen3"})).norms


def test_a_token_takes_what_a_block_keeps():
    # float32: two norms keep 8 bytes a channel, two inputs 4; q, k, v, out; four of the width of 30
    block = 2 * 8 * 10 + 2 * 4 * 10 + 4 * 4 * 20 + 4 * 4 * 30
    assert SMALL.per_token("float32") == (block, 4 * 30 + 2 * 4 * 10, 40)
    half = 2 * 6 * 10 + 2 * 2 * 10 + 4 * 2 * 20 + 4 * 2 * 30
    assert SMALL.per_token("bfloat16") == (half, 2 * 30 + 2 * 2 * 10, 20)
    mixed = 2 * 8 * 10 + 5 * 2 * 10 + 4 * 2 * 20 + 4 * 2 * 30
    assert SMALL.per_token("autocast") == (mixed, 2 * 30 + 2 * 4 * 10, 40)


def test_policies_add_up_and_the_heavier_one_is_updated():
    block, working, between = SMALL.per_token("float32")
    light, heavy = learner(token_budget=10), learner()
    found = plan([light, heavy], 500.0, "float32", ranks=1, local_ranks=1)
    assert (found.masters, found.optimizer, found.gradients) == (8000, 16000, 4000)
    assert found.activations == 100 * (2 * block + 3 * between + working)
    assert found.other_activations == 100 * (2 * between + 3 * between + block + working)
    assert found.head == 0  # 7 * (16 * 5 + 4 * 10), less than a block's backward pass
    assert found.peak == 8000 + 16000 + 4000 + 500 + found.activations
    assert (found.loading, found.saving) == (4000, 24000)


def test_logits_that_the_head_keeps_count_as_far_as_there_are_any():
    # a chunk and its own gradient, as above, and at most the 95 tokens of other chunks
    assert learner().head("float32") == 7 * (16 * 5 + 4 * 10)
    assert learner(head_kept=1000.0).head("float32") == 7 * (16 * 5 + 4 * 10) + 1000
    assert learner(head_kept=1e9).head("float32") == 7 * (16 * 5 + 4 * 10) + 4 * 7 * 95


def test_weights_are_shared_by_ranks_and_gathered_block_by_block():
    found = plan([learner(), learner()], 0.0, "bfloat16", ranks=4, local_ranks=2)
    assert (found.masters, found.optimizer, found.gradients) == (2000, 4000, 1000)
    # twice the 200 outside the blocks and a block of 400, and a block's gradients, 2 bytes each
    assert found.gathered == 2 * 2 * (200 + 400) + 2 * 400
    assert found.loading == 2 * 4000
    assert plan([learner()], 0.0, "autocast", 1, 1).gathered == 2 * 1000


def test_references_adapters_and_a_steps_own_tensors_count():
    assert plan([learner(copies=2)], 0.0, "float32", 1, 1).masters == 8000
    adapted = plan([learner(trained=50)] + [learner(trained=50, copies=0)], 0.0, "float32", 1, 1)
    assert (adapted.masters, adapted.gradients) == (4 * (1000 + 2 * 50), 4 * 50)
    assert adapted.optimizer == 4 * 2 * 100
    step = plan([learner(scratch=1000.0, token_budget=1)], 0.0, "float32", 1, 1)
    assert step.peak == 4000 + 8000 + 4000 + 4_000_000


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="no peak to reset")
def test_an_update_takes_what_was_planned_within_15_percent():
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = f"{TESTS.parent / 'src'}{os.pathsep}{TESTS}"
    done = subprocess.run(
        [sys.executable, str(TESTS / "measured_memory.py")],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    ratios = [float(m) / float(p) for m, p in map(str.split, done.stdout.splitlines())]
    assert len(ratios) == 3 and all(0.85 < ratio < 1.15 for ratio in ratios), ratios


QWEN3 = {"num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936}
BIG = Qwen3Config(
    hidden_size=4096,
    intermediate_size=12288,
    num_hidden_layers=36,
    num_attention_heads=32,
    tie_word_embeddings=False,
    **QWEN3,
)


def test_two_policies_of_8b_on_eight_cards_are_more_than_80_gb():
    """Two engines with a share of 0.3 each, micro-batches of 32,768 tokens."""
    shape = Shape.of(BIG)
    assert shape.weights == pytest.approx(8.19e9, rel=0.001)
    each = learner(
        shape=shape,
        trained=shape.weights,
        token_budget=32768,
        head_chunk=1024,
        checkpointing=True,
    )
    found = plan([each, each], 2 * 0.3 * 80 * GIB, "bfloat16", ranks=8, local_ranks=8)
    assert found.masters / GIB == pytest.approx(2 * 8.19e9 * 4 / 8 / GIB, rel=0.001)
    assert 85 < found.peak / GIB < 105
