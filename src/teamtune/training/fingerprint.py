"""What a checkpoint and the team that loads it must have in common, beside the weights' shapes."""

import hashlib
import json
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from teamtune.inference.pretrained import read_tokenizer
from teamtune.policies import Policy
from teamtune.policies.tiny import TinyLlama

NO_MATTER = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version")
"""Of a model's configuration what changes nothing that it computes in training."""


def class_path(thing: Any) -> str:
    """Of an object's class."""
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def fingerprint(policy: Policy) -> dict[str, Any]:
    """Of a trained policy, in plain values, without its weights.

    `architecture` is the model's configuration, `vocabulary` a hash of the tokens in the order of
    their ids, `optimizer` a class path, and `settings` are those of a fresh optimizer.
    """
    config = json.loads(policy.config().to_json_string(use_diff=False))
    optimizer = policy.optimizer_factory([nn.Parameter(torch.zeros(1))])
    return {
        "architecture": {name: v for name, v in config.items() if name not in NO_MATTER},
        "vocabulary": vocabulary_hash(policy),
        "alpha": None if policy.lora is None else float(policy.lora.alpha),
        "optimizer": class_path(optimizer),
        "settings": settings(optimizer.param_groups[0]),
    }


def settings(group: dict[str, Any]) -> dict[str, Any]:
    """An optimizer's settings as plain values, without its parameters."""
    return {name: _plain(value) for name, value in group.items() if name != "params"}


def vocabulary_hash(policy: Policy) -> str:
    """Of all tokens in the order of their ids, equal for a recipe and for the folder made of it."""
    if isinstance(policy.source, TinyLlama):
        return _hash(list(enumerate(policy.source.words())))
    return _folder_hash(policy.source)


@lru_cache
def _folder_hash(model: str) -> str:
    return _hash(sorted((i, token) for token, i in read_tokenizer(model).get_vocab().items()))


def _hash(tokens: list[tuple[int, str]]) -> str:
    return hashlib.sha256(json.dumps(tokens).encode()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)
