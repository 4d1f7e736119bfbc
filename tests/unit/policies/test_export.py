"""Exports: what transformers loads comes out as a folder again, whatever it says of generating."""

import json
from pathlib import Path

from factories import built_policy
from teamtune.policies import TinyLlama


def test_a_generation_configuration_that_transformers_refuses_to_save_goes_along_as_it_is(
    tmp_path: Path,
):
    model, exported = tmp_path / "model", tmp_path / "exported"
    TinyLlama(["a", "b", "c"], hidden_size=16, num_layers=1, num_heads=2).build(model, 0)
    path = model / "generation_config.json"
    given = {"temperature": 0.5, "do_sample": False, "eos_token_id": [2, 5]}
    path.write_text(json.dumps(json.loads(path.read_text()) | given))
    built_policy(model).export(exported, True)
    assert (exported / "generation_config.json").read_text() == path.read_text()
    names = {entry.name for entry in exported.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names
    assert "visible" not in (exported / "config.json").read_text()  # the trainer's attention
