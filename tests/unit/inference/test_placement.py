"""Which engine serves which policy, and what is found out before any is made."""

import asyncio
from functools import partial
from typing import Any

import pytest
import torch
from transformers import Qwen3MoeConfig

from engines import tiny_model
from teamtune.errors import ConfigError
from teamtune.inference import Placement, Sampling, ScriptedEngine, TransformersEngine
from teamtune.inference.placement import close
from teamtune.inference.vllm import VLLMEngine
from teamtune.policies import Policy, TinyLlama

SAMPLING = Sampling(max_tokens=4)


class Noted(ScriptedEngine):
    """Knows what it was made for, and how often it was closed."""

    def __init__(self, model: str, sampling: Sampling, name: str = "", limit: int = 9):
        super().__init__(lambda prompt, seed: name, sampling)
        self.model, self.name, self.closed, self.version = model, name, 0, -1
        if limit < 0:
            raise ConfigError(f"limit: got {limit}, allowed: 0 or more")

    def close(self) -> None:
        self.closed += 1


FOLDERS = {"a": "one", "b": "one", "c": "two"}


def test_every_policy_has_an_engine_of_its_own_from_its_factory():
    placement = Placement(partial(Noted, name="usual"), {"b": partial(Noted, name="other")})
    engines = placement.engines(FOLDERS, SAMPLING)
    assert [(n, e.model, e.name) for n, e in engines.items()] == [
        ("a", "one", "usual"),
        ("b", "one", "other"),
        ("c", "two", "usual"),
    ]
    assert all(e.sampling is SAMPLING and e.version == -1 for e in engines.values())
    assert len({id(e) for e in engines.values()}) == 3


def test_frozen_policies_of_one_folder_and_factory_share_one_engine():
    folders = {"trained": "one", "a": "one", "b": "one", "c": "two", "d": "one"}
    placement = Placement(Noted, {"d": partial(Noted, name="other")})
    engines = placement.engines(folders, SAMPLING, frozen=["a", "b", "c", "d"])
    assert engines["a"] is engines["b"]
    assert len({id(e) for e in engines.values()}) == 4
    assert engines["trained"].version == -1
    assert {engines[name].version for name in "abcd"} == {0}  # as the policy: nothing to load
    close(engines)
    assert {e.closed for e in engines.values()} == {1}


def test_engines_that_were_made_are_closed_where_a_later_one_cannot_be():
    made: list[Noted] = []

    def keep(model: str, sampling: Sampling) -> Noted:
        made.append(Noted(model, sampling))
        return made[-1]

    placement = Placement(keep, {"c": partial(Noted, limit=-1)})
    with pytest.raises(ConfigError, match=r"^rollout.engines.c.init_args.limit: got -1"):
        placement.engines(FOLDERS, SAMPLING)
    assert [engine.closed for engine in made] == [1, 1]
    with pytest.raises(ConfigError, match=r"^rollout.engine.init_args.limit: got -1"):
        Placement(partial(Noted, limit=-1)).engines(FOLDERS, SAMPLING)


def config(**settings: Any) -> Any:
    return Policy(TinyLlama(["{0..9}"], 64, num_heads=2, **settings)).config()


def test_a_misspelt_policy_and_an_answer_longer_than_the_context_are_told():
    models = {"planner": config(context_length=16), "other": config(context_length=9)}
    Placement(TransformersEngine).check(models, Sampling(max_tokens=8))
    with pytest.raises(ConfigError, match=r"^rollout.sampling.max_tokens: got 9, .* of 9 tokens"):
        Placement(TransformersEngine).check(models, Sampling(max_tokens=9))
    with pytest.raises(ConfigError, match=r"^rollout.engines.planer: .*did you mean 'planner'"):
        Placement(Noted, {"planer": Noted}).check(models, SAMPLING)


def test_what_an_engine_says_about_its_settings_is_told_with_its_key(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    on_gpu = partial(TransformersEngine, device="cuda")
    with pytest.raises(ConfigError, match=r"^rollout.engine.init_args.device: got cuda"):
        Placement(on_gpu).check({"a": config()}, SAMPLING)
    with pytest.raises(ConfigError, match=r"^rollout.engines.b.init_args.device: got cuda"):
        Placement(Noted, {"b": on_gpu}).check({"a": config(), "b": config()}, SAMPLING)
    monkeypatch.setattr(VLLMEngine, "check_installed", lambda: None)
    narrow = Policy(TinyLlama(["a"], 64, num_heads=4)).config()
    with pytest.raises(ConfigError, match=r"^rollout.engine: vLLM on a CPU has no .* width 16"):
        Placement(VLLMEngine).check({"a": narrow}, SAMPLING)


def test_one_mixture_of_experts_is_all_that_vllm_keeps_in_a_process(monkeypatch):
    monkeypatch.setattr(VLLMEngine, "check_installed", lambda: None)
    dense, mixed = config(), Qwen3MoeConfig(num_experts=4, head_dim=32)
    for on_gpu in (False, True):
        monkeypatch.setattr(torch.cuda, "is_available", lambda on_gpu=on_gpu: on_gpu)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
        Placement(VLLMEngine).check({"a": mixed, "b": dense}, SAMPLING)
        Placement(VLLMEngine, {"b": Noted}).check({"a": mixed, "b": mixed}, SAMPLING)
    with pytest.raises(ConfigError, match=r"^policies: got 2 with mixtures of experts"):
        Placement(VLLMEngine).check({"a": mixed, "b": mixed, "c": dense}, SAMPLING)


def test_a_frozen_policy_has_no_weights_but_in_its_engine(tmp_path):
    folder = str(tiny_model(tmp_path))
    policy = Policy(folder, trainable=False)
    policy.check()
    policy.prepare(tmp_path / "run", True, 0)
    policy.build(None, with_reference=True)
    assert list(policy.parameters()) == [] and policy.trainable_parameters() == []
    assert policy.state_dict() == {} and policy.shapes() == {}
    policy.export(tmp_path / "export", write=True)
    assert not (tmp_path / "export").exists()
    engines = Placement(TransformersEngine).engines({"p": policy.folder}, SAMPLING, ["p"])
    (answer,) = asyncio.run(engines["p"].generate([4, 5]))
    assert answer.version == policy.version == 0
    with pytest.raises(ConfigError, match="^scheduler: no effect with trainable: false"):
        Policy(folder, scheduler=lambda o: None, trainable=False)  # type: ignore[arg-type, return-value]


def test_engines_of_other_models_speak_their_own_language(tmp_path):
    folders = {}
    for name, words in (("trained", "x hello y"), ("frozen", "hello a b c")):
        TinyLlama(words.split(), 32, 1, 1, 32).build(tmp_path / name, seed=0)
        folders[name] = str(tmp_path / name)
    engines = Placement(TransformersEngine).engines(folders, SAMPLING, ["frozen"])
    messages = [{"role": "user", "content": "hello"}]
    assert {n: e.chat.encode(messages) for n, e in engines.items()} == {
        "trained": [4],
        "frozen": [3],
    }
    texts = {
        n: asyncio.run(e.generate(e.chat.encode(messages), 8))[0].text for n, e in engines.items()
    }
    assert set(texts["trained"].split()) <= {"x", "hello", "y"}
    assert set(texts["frozen"].split()) <= {"hello", "a", "b", "c"}
