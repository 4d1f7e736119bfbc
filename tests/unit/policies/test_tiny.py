"""Models made on the spot load as ordinary Hugging Face folders."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from teamtune.errors import ConfigError
from teamtune.inference import HFChat
from teamtune.policies import Policy, TinyLlama
from teamtune.policies.tiny import expand


@pytest.fixture
def recipe(tmp_path):
    words = tmp_path / "words.txt"
    words.write_text("U D L R go go\nnow")
    return TinyLlama(str(words), hidden_size=16, num_layers=1, num_heads=2, intermediate_size=32)


def test_equal_seeds_give_equal_weights_and_leave_global_random_state(recipe, tmp_path):
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        recipe.build(tmp_path / folder, seed)
    assert torch.equal(torch.rand(2), expected)
    a, b, c = (
        AutoModelForCausalLM.from_pretrained(tmp_path / f).state_dict() for f in ("a", "b", "c")
    )
    assert all(torch.equal(a[k], b[k]) for k in a)
    assert not torch.equal(a["model.embed_tokens.weight"], c["model.embed_tokens.weight"])


def test_the_tokenizer_keeps_words_and_ends_answers(recipe, tmp_path):
    recipe.build(tmp_path / "m", 0)
    chat = HFChat(str(tmp_path / "m"))
    ids = chat.encode([{"role": "user", "content": "go now\nU"}])
    assert chat.decode(ids) == "go now U"
    answer = chat.encode_answer("L R")
    assert chat.decode(answer) == "L R" and answer[-1] in chat.stop_ids
    unknown = chat.encode([{"role": "user", "content": "stop"}])
    assert len(unknown) == 1 and chat.decode(unknown) == ""


def test_an_unreadable_vocabulary_is_named():
    with pytest.raises(ConfigError, match="nowhere.txt"):
        TinyLlama("nowhere.txt").words()


def test_words_with_braces_stand_for_all_combinations():
    assert expand("{U,D}{0..2}") == ["U0", "U1", "U2", "D0", "D1", "D2"]
    assert expand("{-1..1},x") == ["-1,x", "0,x", "1,x"]
    assert expand("plain") == ["plain"] and expand("{.,#}") == [".", "#"]
    words = TinyLlama(["{a,b}", "b", "c"]).words()
    assert words[-3:] == ["a", "b", "c"] and len(words) == len(set(words))


def test_heads_must_divide_the_width(tmp_path):
    with pytest.raises(ConfigError, match="num_heads: got 3, allowed: a divisor of 16"):
        TinyLlama("x", hidden_size=16, num_heads=3)


def test_heads_are_as_wide_as_every_engine_computes_them():
    for width, heads in ((32, 1), (64, 2), (128, 4), (24, 1)):
        assert TinyLlama(["a"], width).config().num_attention_heads == heads
    assert TinyLlama(["a"]).config().head_dim == 32


def test_an_exported_policy_is_the_policy(recipe, tmp_path):
    recipe.build(tmp_path / "m", 0)
    policy = Policy(str(tmp_path / "m"))
    policy.build(None, with_reference=False)
    with torch.no_grad():
        for weight in policy.trainable_parameters():
            weight.add_(0.01 * torch.randn_like(weight))
    policy.export(tmp_path / "out", write=True)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out").state_dict()
    own = dict(policy.full_weights())
    assert loaded.keys() == own.keys()
    assert all(torch.equal(loaded[k], own[k]) for k in own)
    assert HFChat(str(tmp_path / "out")).encode([{"role": "user", "content": "go"}])


@pytest.mark.parametrize("lr", [0.0, -1e-3])
def test_learning_rates_must_be_positive(lr):
    with pytest.raises(ConfigError, match=r"lr: got"):
        Policy("x", optimizer=lambda p: torch.optim.SGD(p, lr=lr) if lr >= 0 else BadSGD(p, lr))


class BadSGD(torch.optim.SGD):
    """SGD that does not check its learning rate."""

    def __init__(self, params, lr):
        super().__init__(params, lr=1.0)
        for group in self.param_groups:
            group["lr"] = lr


def test_the_reference_is_frozen_until_it_is_set(recipe, tmp_path):
    recipe.build(tmp_path / "m", 0)
    policy = Policy(str(tmp_path / "m"))
    policy.build(None, with_reference=True)
    weight, old = policy.scorer.lm.lm_head.weight, policy.reference.lm.lm_head.weight
    with torch.no_grad():
        weight.add_(1.0)
    assert not torch.equal(weight, old)
    policy.set_reference()
    assert torch.equal(weight, old) and not old.requires_grad
