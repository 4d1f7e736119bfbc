"""Makers of small records and models that several tests share."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from teamtune.policies import Policy
from teamtune.rollout import Candidate, Group, GroupKey

VOCABULARY = 29
END = 2


def candidate(ids: Sequence[int], advantage: float = 1.0, **settings: Any) -> Candidate:
    """A scored answer of `ids`, sampled with log-prob -1 each; its reward is its advantage."""
    values: dict[str, Any] = {
        "text": " ".join(map(str, ids)),
        "token_ids": tuple(ids),
        "sampling_logprobs": (-1.0,) * len(ids),
        "stop_reason": "stop",
        "version": 0,
        "reward": advantage,
        "advantage": advantage,
    }
    return Candidate(**{**values, **settings})


def group(
    prompt: Sequence[int],
    answers: Sequence[Candidate],
    task: str = "task-0",
    agent: str = "planner",
    policy: str = "team",
) -> Group:
    """The candidates `answers` to the prompt ids `prompt`."""
    return Group(GroupKey(task, agent, 0), policy, "", tuple(prompt), list(answers))


def random_group(rng: random.Random, answers: int = 3, flat: bool = False, **key: str) -> Group:
    """Prompt of 2 to 9 ids, answers of 1 to 5 that end with END; advantages of sum 0, or all 0."""
    prompt = [rng.randrange(3, VOCABULARY) for _ in range(rng.randint(2, 9))]
    credit = [0.0] * answers if flat else [rng.uniform(-1, 1) for _ in range(answers)]
    mean = sum(credit) / answers
    candidates = []
    for a in credit:
        ids = [*(rng.randrange(3, VOCABULARY) for _ in range(rng.randint(0, 4))), END]
        logprobs = tuple(rng.uniform(-4.0, -2.5) for _ in ids)
        candidates.append(candidate(ids, a - mean, sampling_logprobs=logprobs))
    return group(prompt, candidates, **key)


def model_folder(folder: Path, kind: str = "llama", seed: int = 0, tied: bool = False) -> Path:
    """A randomly drawn two-layer model of VOCABULARY ids: `llama`, `qwen3`."""
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

    sizes: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "tie_word_embeddings": tied,
        "initializer_range": 0.3,
        "bos_token_id": None,
        "eos_token_id": END,
        "dtype": "float32",
    }
    torch.manual_seed(seed)
    if kind == "qwen3":
        model: Any = Qwen3ForCausalLM(Qwen3Config(**sizes, head_dim=8))
    else:
        model = LlamaForCausalLM(LlamaConfig(**sizes))
    model.save_pretrained(folder)
    return folder


def built_policy(folder: Path, reference: bool = False, mesh: Any = None, **settings: Any) -> Policy:
    """A policy of the model in `folder`, its weights loaded; plain SGD unless given otherwise."""
    settings = {"optimizer": lambda p: torch.optim.SGD(p, lr=0.1), "max_grad_norm": 1e9} | settings
    policy = Policy(str(folder), **settings)
    policy.build(mesh, reference)
    return policy
