"""A trained agent beside a frozen one of another model, tokenizer and engine."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from factories import checkpoint, logged, team_config
from teamtune.command.cli import run
from teamtune.errors import ConfigError
from teamtune.policies import TinyLlama

WORDS = ["R", "L", "D", "U", "of", "another", "order"]


def made(path: str, **init_args: Any) -> dict[str, Any]:
    return {"class_path": path, "init_args": init_args}


def frozen(folder: Path, **more: Any) -> dict[str, Any]:
    """A proposer that never learns: a wider model from a folder, whose words have other ids."""
    other = folder / "other"
    TinyLlama(WORDS, 64, 1, 2, 96, context_length=90).build(other, seed=5)
    policy = made("teamtune.policies.Policy", model=str(other), trainable=False, **more)
    return {"a-": None, "a": policy}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("frozen")
    torch.set_num_threads(1)
    engine = made("teamtune.inference.TransformersEngine", max_batch_rows=64)
    config = team_config(folder, model={"policies": frozen(folder)})
    run(["fit", *config, f"--rollout.engines.a={engine}"])
    return folder


def test_only_the_trained_policy_is_in_the_checkpoint_and_in_the_export(trained: Path):
    saved = checkpoint(trained, 4)
    assert {key.split(".")[1] for key in saved["state_dict"]} == {"b"}
    assert len(saved["optimizer_states"]) == len(saved["lr_schedulers"]) == 1
    assert saved["team"]["versions"] == {"a": 0, "b": 4}
    (export,) = trained.glob("outputs/run-*/export")
    assert [path.name for path in export.iterdir()] == ["b"]


def test_the_trained_policy_learns_and_nothing_is_told_of_the_frozen_ones_update(trained: Path):
    names = {name for _, name in logged(trained)}
    assert {"b/loss", "b/lr", "rollout/proposer/reward_local"} <= names
    assert not any(name.startswith("a/") for name in names)
    first, last = (checkpoint(trained, step)["state_dict"] for step in (1, 4))
    assert any(not torch.equal(first[key], last[key]) for key in first)


def test_each_agent_is_prompted_in_its_own_tokenizers_ids(trained: Path):
    (run_dir,) = trained.glob("outputs/run-*")
    own = AutoTokenizer.from_pretrained(run_dir / "models/b").encode("U", add_special_tokens=False)
    other = AutoTokenizer.from_pretrained(trained / "other").encode("U", add_special_tokens=False)
    assert own != other


def test_a_run_with_a_frozen_policy_resumes_with_the_same_bits(trained: Path, tmp_path: Path):
    path = sorted(trained.glob("outputs/run-*/checkpoints/step-000002.ckpt"))[0]
    config = ["--config", str(trained / "config.yaml"), "--trainer.default_root_dir"]
    run(["fit", *config, str(tmp_path / "outputs"), f"--ckpt_path={path}"])
    again, whole = checkpoint(tmp_path, 4)["state_dict"], checkpoint(trained, 4)["state_dict"]
    assert all(torch.equal(again[key], whole[key]) for key in whole)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"lora": {"rank": 2}}, "lora: no effect with trainable: false"),
        ({}, "policies: got frozen ones alone"),
    ],
)
def test_what_a_frozen_policy_cannot_be_given_is_refused(tmp_path, more, message):
    policies = frozen(tmp_path, **more)
    if not more:
        policies |= {"b-": None, "b": policies["a"]}
    with pytest.raises(ConfigError, match=message):
        run(["fit", *team_config(tmp_path, model={"policies": policies})])
    assert not (tmp_path / "outputs").exists()
