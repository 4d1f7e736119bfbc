"""The head by itself: soft cap, temperature, and which gradients flow, on logits given by hand."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from factories import END, candidate, group
from teamtune.errors import ConfigError
from teamtune.experience.packing import pack
from teamtune.policies.scorer import TokenScorer, check_scorable


class Given(nn.Module):
    """A "model" whose logits after every position are `logits`."""

    def __init__(self, logits: Tensor, **config: float):
        super().__init__()
        self.logits = nn.Parameter(logits)
        self.embeddings = nn.Embedding(len(logits), 1)
        config = SimpleNamespace(_attn_implementation="sdpa", vocab_size=len(logits), **config)
        config.get_text_config = lambda: config
        self.config = config

    def get_input_embeddings(self) -> nn.Module:
        return self.embeddings

    def get_output_embeddings(self):
        return lambda states: self.logits.expand(len(states), -1)

    def get_decoder(self):
        return self.body

    def body(self, input_ids, position_ids, attention_mask, use_cache):
        assert not use_cache  # it would only take memory
        return SimpleNamespace(last_hidden_state=input_ids[..., None] + 0.0)


def scored(logits: list[float], temperature: float = 1.0, entropy: bool = False, **config: float):
    """Log-prob of id 0 and entropy, and the logits they were computed from."""
    lm = Given(torch.tensor(logits), **config)
    (batch,) = pack([group((1,), [candidate((0,))])], 100)
    logprobs, entropies = TokenScorer(lm)(batch, temperature, entropy)
    return logprobs, entropies, lm.logits


def test_the_temperature_divides_logits():
    # weights 4 ** (1 / 0.5) = 16 against 1
    logprobs, entropies, _ = scored([math.log(4), 0.0], 0.5)
    assert logprobs.item() == pytest.approx(math.log(16 / 17), abs=1e-6)
    expected = -(16 / 17 * math.log(16 / 17) + 1 / 17 * math.log(1 / 17))
    assert entropies.item() == pytest.approx(expected, abs=1e-6)


def test_a_models_final_soft_cap_is_applied_before_the_temperature():
    # 3 * tanh(x / 3) of 6 and 0 are 2.892083 and 0; over 0.7 they differ by 4.131547
    logprobs, _, _ = scored([6.0, 0.0], 0.7, final_logit_softcapping=3.0)
    assert logprobs.item() == pytest.approx(-math.log1p(math.exp(-4.131547)), abs=1e-5)
    free, _, _ = scored([6.0, 0.0], 0.7, final_logit_softcapping=None)
    assert free.item() == pytest.approx(-math.log1p(math.exp(-6 / 0.7)), abs=1e-6)


def test_the_entropy_has_a_gradient_where_it_is_asked_for_and_only_there():
    # dH / dlogit = -p (log p + H) / T
    logits, temperature = [math.log(3), 0.0], 0.7
    _, entropies, given = scored(logits, temperature, True)
    entropies.sum().backward()
    p = [3 ** (1 / temperature) / (3 ** (1 / temperature) + 1)]
    p.append(1 - p[0])
    h = -sum(x * math.log(x) for x in p)
    slope = [-x * (math.log(x) + h) / temperature for x in p]
    assert given.grad.tolist() == pytest.approx(slope, abs=1e-6)
    assert slope[0] < 0 < slope[1]
    logprobs, entropies, given = scored(logits, temperature)
    assert logprobs.requires_grad and not entropies.requires_grad
    with torch.no_grad():
        assert not scored(logits, temperature, True)[1].requires_grad


def test_the_result_does_not_depend_on_the_chunks_of_the_head():
    lm = Given(torch.tensor([0.5, 0.0, -1.0]))
    (batch,) = pack([group((1,), [candidate((0, 1, END)), candidate((1, END))])], 100)
    whole = TokenScorer(lm)(batch)
    assert torch.equal(whole[0], TokenScorer(lm)(batch, 1.0, False)[0])
    assert not whole[1].requires_grad
    for size in (1, 2, 4):
        for own, other in zip(whole, TokenScorer(lm, size)(batch), strict=True):
            assert torch.equal(own, other)


def test_models_that_score_otherwise_are_refused():
    from transformers import GraniteConfig, LlamaConfig, Qwen3NextConfig

    check_scorable(LlamaConfig())
    check_scorable(GraniteConfig(logits_scaling=1.0))
    with pytest.raises(ConfigError, match=r"scales its logits \(logits_scaling 8.0\), allowed: 1"):
        check_scorable(GraniteConfig(logits_scaling=8.0))
    with pytest.raises(ConfigError, match="has layers of linear_attention, allowed: full"):
        check_scorable(Qwen3NextConfig())
