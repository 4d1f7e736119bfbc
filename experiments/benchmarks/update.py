"""The update against its counted limit: forward and backward of a policy on one packed group.

python -m experiments.benchmarks.update

A Llama of SmolLM2-135M's widths with random weights, in float32 on one thread. It has `--layers` of
the 30 layers and the same share of the vocabulary, so that its parts keep their shares. The limit
is the time of the operations that cannot be left out, at the rate of a matrix product of the
model's measured beside it: products of weights, three times; scores and values of visible pairs,
three times; the head on answers' tokens, three times. Per repetition everything runs once, one
after the other, in seconds of CPU time, so that neighbours on the machine count little; compare
numbers of one run only.
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from teamtune.command.allocator import keep_freed_memory
from teamtune.experience import Candidate, Group, GroupKey
from teamtune.experience.packing import PADDING, PackedBatch, pack
from teamtune.inference import Completion
from teamtune.policies.attention import register
from teamtune.policies.scorer import TokenScorer

LAYERS, VOCABULARY = 30, 49152
SHAPES = ((512, 128, 8), (128, 64, 16), (2048, 512, 4))
"""Tokens of the prompt, tokens of an answer, answers."""
WAYS = {
    "as shipped": ("visible", 2**29),
    "head run twice": ("visible", 0),
    "dense mask, head run twice": ("sdpa", 0),
}
"""Attention, and bytes of the head that are kept for the backward pass."""


def model(layers: int) -> LlamaForCausalLM:
    """`layers` of SmolLM2-135M, drawn at random."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY * layers // LAYERS,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=layers,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config).train()


def one_group(prompt: int, answer: int, answers: int, vocabulary: int) -> PackedBatch:
    """A batch of one group of different answers, all of one length."""
    rng = random.Random(0)

    def ids(count: int) -> tuple[int, ...]:
        return tuple(rng.randrange(vocabulary) for _ in range(count))

    candidates = [
        Candidate(
            Completion(ids(answer), (-1.0,) * answer, "", "length", 0),
            "scored",
            advantage=rng.uniform(-1, 1),
        )
        for _ in range(answers)
    ]
    key = GroupKey("task", "agent", 0)
    (batch,) = pack([Group(key, "policy", "", ids(prompt), candidates)], 10**9)
    return batch


def operations(lm: LlamaForCausalLM, batch: PackedBatch) -> float:
    """Multiplications and additions that the gradient of the log-probs needs."""
    config: Any = lm.config
    weights = sum(p.numel() for p in lm.model.layers.parameters() if p.dim() == 2)
    head = config.vocab_size * config.hidden_size
    seen = (batch.attention_mask(torch.float32)[:, 0] == 0)[batch.segments != PADDING]
    pairs = int(seen.sum()) * config.num_hidden_layers * config.hidden_size
    tokens = int((batch.segments != PADDING).sum())
    return 6.0 * (weights * tokens + 2 * pairs + head * len(batch.targets))


def seconds(run: Callable[[], object]) -> float:
    """CPU time of one call."""
    start = time.process_time()
    run()
    return time.process_time() - start


def product_rate(tokens: int, lm: LlamaForCausalLM) -> float:
    """Operations per second of the model's largest kind of product."""
    weight = lm.model.layers[0].mlp.up_proj.weight.detach()
    x = torch.randn(tokens, weight.shape[1])
    return 5 * 2 * tokens * weight.numel() / seconds(lambda: [x @ weight.T for _ in range(5)])


def spread(values: list[float]) -> str:
    """Median, least and greatest."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def compare(lm: LlamaForCausalLM, batch: PackedBatch, repeats: int) -> None:
    """Prints each way's time, share of the limit, and how many times as long as the first it takes.

    Raises:
        AssertionError: Two ways do not compute the same.
    """
    scorer = TokenScorer(lm)

    def update(way: str) -> torch.Tensor:
        attention, scorer.kept_bytes = WAYS[way]
        lm.set_attn_implementation(attention)
        lm.zero_grad()
        logprobs = scorer(batch)[0]
        (logprobs * batch.advantages).sum().backward()
        return logprobs.detach()

    found = [update(way) for way in WAYS]
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], atol=1e-4, rtol=0)
    needed = operations(lm, batch)
    rates: list[float] = []
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(repeats):
        rates.append(product_rate(batch.num_tokens, lm))
        for way in WAYS:
            times[way].append(seconds(lambda way=way: update(way)))
    limits = [needed / rate for rate in rates]
    print(f"  {'limit':26} {spread(limits)} s, {statistics.median(rates) / 1e9:.0f} G operations/s")
    for way, taken in times.items():
        reached = spread([limit / own for limit, own in zip(limits, taken)])
        longer = spread([own / first for own, first in zip(taken, next(iter(times.values())))])
        print(
            f"  {way:26} {spread(taken)} s, reaches {reached}, {longer} times the first", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--layers", type=int, default=1, help=f"of {LAYERS}")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    register()
    lm = model(options.layers)
    print(
        f"{options.layers} of {LAYERS} layers, {options.repeats} repetitions, one thread, float32"
    )
    for prompt, answer, answers in SHAPES:
        batch = one_group(prompt, answer, answers, lm.config.vocab_size)
        tokens = f"{batch.num_tokens} tokens fed, {len(batch.targets)} scored"
        print(f"P{prompt} R{answer} K{answers}: {tokens}")
        compare(lm, batch, options.repeats)


if __name__ == "__main__":
    main()
