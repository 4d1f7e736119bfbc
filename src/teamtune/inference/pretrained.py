"""Models in folders or on the hub, read through transformers, and never by code of their own.

What cannot be used is told in one line that begins with `model: `, before anything is made of it.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from teamtune.errors import ConfigError

GENERATION = "generation_config.json"
CAUSAL = "allowed: a causal language model such as Llama, Qwen, Gemma or Mistral"
SAFE: dict[str, Any] = {"trust_remote_code": False}
"""Without it transformers asks on the terminal whether to run a model's own code."""


def read_config(model: str) -> Any:
    """The model's configuration.

    Raises:
        ConfigError: There is no such folder, or what it holds is no causal LM of plain weights.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    path = Path(model)
    looks_local = model.startswith((".", "/")) or (len(path.parts) > 1 and path.parent.is_dir())
    if looks_local and not path.is_dir():
        raise ConfigError(f"model: cannot load {model!r}: no such folder")
    if (path / "adapter_config.json").is_file():
        raise ConfigError(
            f"model: {model!r} is an adapter, allowed: a whole model (merge the adapter into its "
            "base, as peft's merge_and_unload does, and save that)"
        )
    with _told(model):
        config = AutoConfig.from_pretrained(model, **SAFE)
    if quantisation := getattr(config, "quantization_config", None):
        method = dict(quantisation).get("quant_method", "some method")
        raise ConfigError(f"model: {model!r} is quantised ({method}), allowed: plain weights")
    kinds = AutoModelForCausalLM._model_mapping
    name = kinds[type(config)].__name__ if type(config) in kinds else None
    given = getattr(config, "architectures", None) or [name]
    if name is None or not any(g == name or g.endswith("ForCausalLM") for g in given):
        raise ConfigError(f"model: {model!r} is a {given[0] or config.model_type}, {CAUSAL}")
    if not kinds[type(config)]._supports_attention_backend:
        raise ConfigError(
            f"model: {model!r} is a {name}, whose attention cannot be replaced, {CAUSAL}"
        )
    return config


def read_tokenizer(model: str) -> Any:
    """The model's tokenizer. Raises ConfigError where it has none."""
    from transformers import AutoTokenizer

    with _told(model, "the tokenizer of "):
        return AutoTokenizer.from_pretrained(model, **SAFE)


def read_generation_config(model: str) -> Any:
    """The model's defaults of generation; None where it has none."""
    from transformers import GenerationConfig

    with _told(model, "generation_config.json of "):
        return None if _generation_file(model) is None else GenerationConfig.from_pretrained(model)


def copy_generation_config(model: str, folder: Path) -> None:
    """As it is, end tokens and all; some that it loads transformers refuses to save."""
    file = _generation_file(model)
    if file is not None:
        shutil.copyfile(file, folder / GENERATION)


def _generation_file(model: str) -> str | None:
    from transformers.utils import cached_file

    return cached_file(model, GENERATION, _raise_exceptions_for_missing_entries=False)


def load(model: str, dtype: torch.dtype, attention: str = "sdpa") -> Any:
    """The model with its weights; with eager attention where the fast one is not the model's own.

    Raises:
        ConfigError: Weights are missing, cut, of another shape, or not finite.
    """
    from transformers import AutoModelForCausalLM

    config = read_config(model)
    cls: Any = AutoModelForCausalLM._model_mapping[type(config)]
    # torch's fused attention has no cap on its scores, and transformers leaves it out in silence.
    if getattr(config.get_text_config(), "attn_logit_softcapping", None) or not cls._supports_sdpa:
        attention = "eager"
    with _told(model):
        lm, found = AutoModelForCausalLM.from_pretrained(
            model, dtype=dtype, attn_implementation=attention, output_loading_info=True, **SAFE
        )
    for what in ("missing_keys", "mismatched_keys"):
        if names := sorted(map(str, found[what])):
            kind = what.removesuffix("_keys")
            raise ConfigError(f"model: {model!r} has {kind} weights: {', '.join(names[:3])}")
    for name, tensor in lm.named_parameters():
        if not all(bool(end.isfinite()) for end in tensor.detach().aminmax()):
            raise ConfigError(f"model: {model!r} has weights that are not finite: {name}")
    return lm


def outline(config: Any) -> Any:
    """A model of this configuration on the meta device: names and shapes without weights."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, **SAFE)


def weight_bytes(config: Any, dtype: str) -> int:
    """Of all weights of a model of this configuration in the number format `dtype`."""
    return getattr(torch, dtype).itemsize * sum(p.numel() for p in outline(config).parameters())


@contextmanager
def _told(model: str, part: str = "") -> Iterator[None]:
    """Says in one line what is wrong with a model's files, for which libraries raise anything."""
    try:
        yield
    except Exception as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), "")
        if "custom code" in str(error):
            reason = "it needs program code of its own, which is not run"
        reason = reason or type(error).__name__
        raise ConfigError(f"model: cannot load {part}{model!r}: {reason}") from error


@lru_cache
def check_weights(model: str) -> None:
    """Loads a model once and forgets it, for only that finds every fault; raises as `load` does."""
    load(model, torch.bfloat16)
