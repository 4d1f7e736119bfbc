"""Which GPUs the shipped configurations fit, and what is said where one does not."""

import pkgutil
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from transformers import Qwen2Config, Qwen3Config

from teamtune.callbacks import RolloutCallback
from teamtune.callbacks.memory import planned, refuse
from teamtune.command.overlays import read_file
from teamtune.errors import ConfigError
from teamtune.inference import Sampling
from teamtune.policies import LoRA, Policy
from teamtune.training import TeamModule
from teamtune.training.memory import GIB, Plan, Shape

ROOT = Path(__file__).parents[3]
CARD = {24: 23.6, 80: 79.1}
"""GiB that a driver shows of a card's GB."""


def qwen3(hidden: int, intermediate: int, layers: int, heads: int, tied: bool) -> Qwen3Config:
    return Qwen3Config(
        vocab_size=151936,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=8,
        head_dim=128,
        tie_word_embeddings=tied,
    )


def coder(vocabulary: int, hidden: int, intermediate: int, layers: int, heads: tuple[int, int]):
    return Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads[0],
        num_key_value_heads=heads[1],
        tie_word_embeddings=hidden < 3000,
    )


MODELS = {
    "Qwen/Qwen3-1.7B": (qwen3(2048, 6144, 28, 16, True), 1.72e9),
    "Qwen/Qwen3-4B": (qwen3(2560, 9728, 36, 32, True), 4.02e9),
    "Qwen/Qwen3-8B": (qwen3(4096, 12288, 36, 32, False), 8.19e9),
    "Qwen/Qwen2.5-Coder-3B-Instruct": (coder(151936, 2048, 11008, 36, (16, 2)), 3.09e9),
    "Qwen/Qwen2.5-Coder-7B-Instruct": (coder(152064, 3584, 18944, 28, (28, 4)), 7.62e9),
}
"""Shapes of models on the hub, and how many weights their cards name."""


CONFIGS = [
    path
    for path in sorted(ROOT.glob("configs/*/*.yaml"))
    if (trainer := read_file(path).get("trainer", {})).get("accelerator") == "gpu"
    and "devices" in trainer
]


def built(node: Any) -> Any:
    """An object of a configuration: its class, with its arguments."""
    return partial(pkgutil.resolve_name(node["class_path"]), **node.get("init_args", {}))


def plan_of(path: Path, monkeypatch: pytest.MonkeyPatch, card: int) -> Plan:
    """The plan of a configuration on so many GB, without a GPU and without the hub."""
    given = read_file(path)
    model, trainer, rollout = given["model"], given["trainer"], given["rollout"]
    policies = {}
    for name, node in model["policies"].items():
        own = {**node["init_args"], "optimizer": built(node["init_args"]["optimizer"])}
        if "lora" in own:
            own["lora"] = LoRA(**own["lora"])
        policies[name] = Policy(**own)
    monkeypatch.setattr(Policy, "config", lambda self: MODELS[self.source][0])
    team = TeamModule(policies, model["policy_map"], built(model["algorithm"])())
    factories = {name: built(node) for name, node in rollout.get("engines", {}).items()}
    callback = RolloutCallback(built(rollout["engine"]), Sampling(**rollout["sampling"]), factories)
    sharded = trainer["strategy"] != "auto"
    precision = "bfloat16" if sharded else "autocast"
    assert trainer["precision"] == ("32-true" if sharded else "bf16-mixed")
    ranks, gpu = trainer["devices"], int(CARD[card] * GIB)
    return planned(team, callback, given["data"]["tasks_per_step"], gpu, precision, ranks, ranks)


@pytest.mark.parametrize("model", MODELS)
def test_the_table_of_models_has_their_numbers_of_weights(model):
    config, weights = MODELS[model]
    assert Shape.of(config).weights == pytest.approx(weights, rel=0.01)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_a_gpu_configuration_fits_its_cards_and_says_its_peak(path, monkeypatch):
    header = path.read_text()
    card = int(re.search(r"^# Hardware: .*?GPUs? with (\d+) GB", header, re.M)[1])
    found = plan_of(path, monkeypatch, card)
    refuse(found, int(CARD[card] * GIB), 1.5)
    said = re.search(r", peak (\d+) GiB", header)
    assert said and int(said[1]) == round(found.peak / GIB)


def test_what_does_not_fit_is_refused_with_numbers_and_the_keys_to_change():
    parts = dict.fromkeys(Plan.__dataclass_fields__, 1.0 * GIB)
    found = Plan(**{**parts, "checkpointing": False, "engines": 3.0 * GIB})
    refuse(found, int(10.5 * GIB), 1.5)  # 3 lasting, 3 of engines, 3 of an update
    with pytest.raises(ConfigError) as refusal:
        refuse(found, int(10.4 * GIB), 1.5)
    assert str(refusal.value).startswith(
        "memory: 9.0 GiB and 1.5 in reserve exceed the GPU's 10.4 (engines 3.0, activations 1.0, "
        "weights and optimizers 3.0); lower rollout.engine.init_args.gpu_memory_utilization, or "
    )
