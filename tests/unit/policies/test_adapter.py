"""A LoRA adapter learns beside weights that stay, and leaves as plain weights."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from factories import built_policy, model_folder, random_group
from teamtune.algorithms import ATGRPO
from teamtune.errors import ConfigError
from teamtune.experience.packing import pack
from teamtune.policies import LoRA, Policy
from teamtune.training import MultiOptimizerLoop, TeamModule

KINDS = ["llama", "qwen3"]


def batch() -> Any:
    rng = random.Random(0)
    (packed,) = pack([random_group(rng, task=f"task-{i}") for i in range(3)], 10_000)
    return packed


def logprobs(policy: Policy) -> torch.Tensor:
    with torch.no_grad():
        return policy(batch())[0]


def trained(folder: Path, **settings: Any) -> Policy:
    """A policy with an adapter after three steps with a KL term."""
    adam = {"optimizer": lambda p: torch.optim.AdamW(p, lr=0.05)}
    policy = built_policy(folder, True, lora=LoRA(rank=2, alpha=8.0), **{**adam, **settings})
    optimizer = policy.optimizer_factory(policy.trainable_parameters())
    loop = MultiOptimizerLoop(ATGRPO(kl_coef=0.1))
    for step in range(3):
        rng = random.Random(step)
        groups = [random_group(rng, task=f"task-{i}") for i in range(4)]
        loop.run(
            {"team": policy}, {"team": optimizer}, {"team": groups}, 1.0, 0, torch.device("cpu")
        )
    return policy


@pytest.mark.parametrize("kind", KINDS)
def test_an_adapter_changes_nothing_until_it_is_trained(tmp_path, kind):
    folder = model_folder(tmp_path, kind)
    plain, adapted = built_policy(folder), built_policy(folder, lora=LoRA(2))
    assert torch.equal(logprobs(plain), logprobs(adapted))
    trainable = {n for n, p in adapted.scorer.named_parameters() if p.requires_grad}
    assert len(trainable) == 2 * 2 * 7  # A and B of seven layers in each of two blocks
    assert all(".lora_" in name for name in trainable)
    assert len(adapted.trainable_parameters()) == len(trainable)


@pytest.mark.parametrize("kind", KINDS)
def test_training_moves_the_policy_and_not_what_lies_beneath(tmp_path, kind):
    folder = model_folder(tmp_path, kind)
    before, policy = logprobs(built_policy(folder)), trained(folder)
    assert (logprobs(policy) - before).abs().max() > 0.01
    assert policy.reference is None
    assert torch.equal(policy.reference_logprobs(batch(), 1.0), before)
    base = AutoModelForCausalLM.from_pretrained(folder).state_dict()
    kept = {n.replace(".base_layer", ""): t for n, t in policy.scorer.lm.state_dict().items()}
    assert all(torch.equal(tensor, kept[name]) for name, tensor in base.items())


@pytest.mark.parametrize("tied", [False, True])
def test_what_engines_and_exports_get_is_the_policy_in_plain_weights(tmp_path, tied):
    folder = model_folder(tmp_path / "model", tied=tied)
    write_tokenizer(folder)
    policy = trained(folder)
    policy.export(tmp_path / "export", write=True)
    names = {name for name, _ in policy.full_weights()}
    assert names == set(AutoModelForCausalLM.from_pretrained(folder).state_dict())
    exported = built_policy(tmp_path / "export")
    torch.testing.assert_close(logprobs(exported), logprobs(policy), rtol=0, atol=1e-5)
    assert torch.equal(policy.reference_logprobs(batch(), 1.0), logprobs(built_policy(folder)))


def test_an_export_ends_where_the_model_does(tmp_path):
    from transformers import GenerationConfig

    folder = model_folder(tmp_path / "model")
    write_tokenizer(folder)
    GenerationConfig(eos_token_id=[2, 7]).save_pretrained(folder)
    built_policy(folder).export(tmp_path / "export", write=True)
    assert GenerationConfig.from_pretrained(tmp_path / "export").eos_token_id == [2, 7]


def test_adapters_share_one_set_of_weights_beneath_and_learn_apart(tmp_path):
    def team() -> TeamModule:
        settings = {"first": {"lora": LoRA(2)}, "second": {"lora": LoRA(3)}, "full": {}}
        policies = {name: Policy(str(folder), **own) for name, own in settings.items()}
        for name, policy in policies.items():
            policy.prepare(tmp_path / name, False, 0)
        module = TeamModule(policies, {"planner": "first"}, ATGRPO())
        module.configure_model()
        return module

    folder = model_folder(tmp_path / "model", tied=True)
    module = team()
    first, second, full = module.named_policies().values()
    before = logprobs(full)
    beneath = [
        {id(p) for p in q.scorer.parameters() if not p.requires_grad} for q in (first, second)
    ]
    assert beneath[0] == beneath[1] and len(beneath[0]) == len(list(full.parameters()))
    assert not beneath[0] & {id(p) for p in full.parameters()}
    for adapter in first.trainable_parameters():
        torch.nn.init.constant_(adapter, 0.1)
    assert not torch.allclose(logprobs(first), before, atol=1e-3)
    for policy in (second, full):
        assert torch.equal(logprobs(policy), before)

    saved = tmp_path / "team.ckpt"
    torch.save(module.state_dict(), saved)
    loaded = torch.load(saved)
    distinct = {tensor.untyped_storage().data_ptr() for tensor in loaded.values()}
    assert len(distinct) == len(list(module.parameters()))  # the file has them once, too
    again = team()
    again.load_state_dict(loaded)
    for own, other in zip(module.named_policies().values(), again.named_policies().values()):
        assert torch.equal(logprobs(own), logprobs(other))


def write_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)


def test_recomputation_gives_the_same_training(tmp_path):
    """By SGD: AdamW makes a whole step of a gradient that is rounding alone."""
    folder = model_folder(tmp_path)
    sgd: dict[str, Any] = {"optimizer": lambda p: torch.optim.SGD(p, lr=0.1)}
    plain = logprobs(trained(folder, **sgd))
    recomputed = logprobs(trained(folder, **sgd, gradient_checkpointing=True, token_budget=25))
    torch.testing.assert_close(recomputed, plain, rtol=0, atol=1e-5)


def test_the_seed_draws_the_adapter_and_nothing_else(tmp_path):
    def start(seed: int, name: str) -> dict[str, torch.Tensor]:
        policy = Policy(str(folder), lora=LoRA(2))
        policy.prepare(tmp_path / name, False, seed)
        torch.manual_seed(5)
        policy.build(None, False)
        assert torch.rand(1) == drawn
        return policy.scorer.state_dict()

    folder = model_folder(tmp_path / "model")
    torch.manual_seed(5)
    drawn = torch.rand(1)
    first, again = start(0, "a"), start(0, "a")
    for name, tensor in first.items():
        assert torch.equal(tensor, again[name])
    for other in (start(1, "a"), start(0, "b")):
        for name, tensor in first.items():
            assert torch.equal(tensor, other[name]) == ("lora_A" not in name)


def test_the_shapes_are_told_without_weights(tmp_path):
    policy = built_policy(model_folder(tmp_path), lora=LoRA(3))
    own = {name: tensor.shape for name, tensor in policy.scorer.state_dict().items()}
    assert policy.shapes() == own


def experts() -> torch.nn.Module:
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 24, "moe_intermediate_size": 8, "head_dim": 8}
    heads = {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(vocab_size=9, num_experts=4, **sizes, **heads))


def convolutions() -> torch.nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(vocab_size=9, n_embd=8, n_layer=1, n_head=2))


@pytest.mark.parametrize("model", [experts, convolutions])
def test_layers_whose_update_could_not_be_merged_are_refused(model):
    with pytest.raises(ConfigError, match=r"^lora: .* is \w+, allowed: models of torch.nn.Linear"):
        LoRA(2).attach(model(), 0)
