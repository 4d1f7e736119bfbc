"""Folders that cannot be used are told in one line; other kinds of models score what they say."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

from engines import difference, make_policy, tiny_model
from factories import model_folder
from teamtune.errors import ConfigError
from teamtune.inference import TransformersEngine
from teamtune.inference.pretrained import load
from teamtune.policies import Policy

SIZES: dict[str, Any] = {
    "vocab_size": 23,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.2,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": 2,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("whole"), tied=False)


def configure(**values: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return change


def weights(change: Callable[[dict[str, torch.Tensor]], Any]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / "model.safetensors"
        tensors = load_file(path)
        change(tensors)
        save_file(tensors, path, {"format": "pt"})

    return apply


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])


def without(*names: str) -> Callable[[Path], None]:
    return lambda folder: [(folder / name).unlink() for name in names] and None


def other(model: Callable[[], Any]) -> Callable[[Path], None]:
    return lambda folder: model().save_pretrained(folder)


def bert() -> Any:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return hf.BertForMaskedLM(hf.BertConfig(vocab_size=23, intermediate_size=16, **sizes))


def t5() -> Any:
    config = hf.T5Config(vocab_size=23, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    return hf.T5ForConditionalGeneration(config)


def bloom() -> Any:
    return hf.BloomForCausalLM(hf.BloomConfig(vocab_size=23, hidden_size=16, n_layer=1, n_head=2))


def mpt() -> Any:
    return hf.MptForCausalLM(hf.MptConfig(vocab_size=23, d_model=16, n_layers=1, n_heads=2))


def falcon() -> Any:
    config = hf.FalconConfig(
        vocab_size=23, hidden_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    return hf.FalconForCausalLM(config)


NAN = "model.layers.1.mlp.down_proj.weight"
BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "no configuration": (without("config.json"), "cannot load .*"),
    "garbled": (lambda f: (f / "config.json").write_text("{"), "cannot load .*"),
    "unknown type": (configure(model_type="llamma"), "cannot load .*llamma"),
    "own code": (
        configure(model_type="mine", auto_map={"AutoConfig": "mine.Config"}),
        "cannot load .*: it needs program code of its own, which is not run",
    ),
    "gptq": (
        configure(quantization_config={"quant_method": "gptq", "bits": 4}),
        r"is quantised \(gptq\), allowed: plain weights",
    ),
    "bitsandbytes": (
        configure(quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True}),
        r"is quantised \(bitsandbytes\)",
    ),
    "adapter": (
        lambda f: (f / "adapter_config.json").write_text("{}"),
        "is an adapter, allowed: a whole model",
    ),
    "no tokenizer": (without("tokenizer.json", "tokenizer_config.json"), ".*"),
    "garbled tokenizer": (
        lambda f: (f / "tokenizer.json").write_text('{"a": 1}'),
        "cannot load the tokenizer of",
    ),
    "garbled generation": (
        lambda f: (f / "generation_config.json").write_text("{"),
        "cannot load generation_config.json of",
    ),
    "no weights": (without("model.safetensors"), "cannot load .*"),
    "cut": (cut, "cannot load .*"),
    "missing": (weights(lambda t: t.pop(NAN)), f"has missing weights: {NAN}"),
    "of another shape": (weights(lambda t: t.update({NAN: torch.zeros(3, 3)})), ".*"),
    "nan": (weights(lambda t: t[NAN][3].fill_(torch.nan)), f"has weights that .* finite: {NAN}"),
    "inf": (weights(lambda t: t[NAN][3].fill_(torch.inf)), f"has weights that .* finite: {NAN}"),
    "bert": (other(bert), "is a BertForMaskedLM, allowed: a causal"),
    "t5": (other(t5), "is a T5ForConditionalGeneration, allowed: a causal"),
    "bloom": (other(bloom), "is a BloomForCausalLM, whose attention"),
    "mpt": (other(mpt), "is a MptForCausalLM, whose attention"),
    "falcon": (other(falcon), "is a FalconForCausalLM, whose attention"),
}


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("trainable", [True, False])
def test_folders_that_cannot_be_used_are_told_in_one_line(
    whole, tmp_path, monkeypatch, case, trainable
):
    break_it, message = BROKEN[case]
    folder = tmp_path / "model"
    shutil.copytree(whole, folder)
    break_it(folder)
    monkeypatch.setattr("builtins.input", lambda question="": pytest.fail("asked the user"))
    with pytest.raises(ConfigError, match=f"^model: .*{message}") as caught:
        Policy(str(folder), trainable=trainable).check()
    assert "\n" not in str(caught.value) and str(folder) in str(caught.value)


def test_a_whole_folder_is_accepted_and_one_that_is_not_there_is_not(whole, tmp_path):
    Policy(str(whole)).check()
    with pytest.raises(ConfigError, match=f"^model: cannot load '{tmp_path}/no': no such folder"):
        Policy(f"{tmp_path}/no").check()


def gemma2() -> Any:
    more = {"head_dim": 16, "query_pre_attn_scalar": 16, "num_key_value_heads": 1}
    caps = {"attn_logit_softcapping": 0.5, "final_logit_softcapping": 3.0, "sliding_window": 4}
    return hf.Gemma2ForCausalLM(hf.Gemma2Config(**SIZES, **more, **caps))


def gpt2() -> Any:
    return hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=23, n_embd=32, n_layer=2, n_head=2))


def neox() -> Any:
    return hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**SIZES))


def phi3() -> Any:
    return hf.Phi3ForCausalLM(hf.Phi3Config(**SIZES))


def opt() -> Any:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "ffn_dim": 48, "num_attention_heads": 2}
    return hf.OPTForCausalLM(hf.OPTConfig(vocab_size=23, word_embed_proj_dim=32, **sizes))


@pytest.mark.parametrize("kind", [gemma2, gpt2, neox, phi3, opt])
def test_engine_and_trainer_agree_about_models_of_other_kinds(whole, tmp_path, kind):
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(whole / name, tmp_path / name)
    torch.manual_seed(0)
    kind().save_pretrained(tmp_path)
    policy = make_policy(tmp_path)
    policy.check()
    assert difference(policy, TransformersEngine(str(tmp_path)), 1.0) < 1e-5


def test_gemma_2_keeps_the_cap_of_its_attention(tmp_path):
    torch.manual_seed(0)
    gemma2().save_pretrained(tmp_path)
    ids = torch.arange(3, 15)[None]
    with torch.no_grad():
        exact = hf.AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager")(ids)
        lost = hf.AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="sdpa")(ids)
        ours = load(str(tmp_path), torch.float32, "sdpa")(ids)
    assert torch.equal(ours.logits, exact.logits)
    assert (lost.logits - exact.logits).abs().max() > 1e-3


def test_other_models_keep_the_fast_attention(tmp_path):
    model_folder(tmp_path)
    assert load(str(tmp_path), torch.float32).config._attn_implementation == "sdpa"
