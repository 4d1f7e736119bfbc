"""A tiny model and questions to engines that hold it, for the tests of engines."""

import asyncio
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from teamtune.algorithms import ATGRPO
from teamtune.experience import Candidate, Group, GroupKey
from teamtune.experience.packing import pack
from teamtune.inference import Completion, RolloutEngine, Sampling
from teamtune.policies import Policy, TinyLlama
from teamtune.training import Session, TeamModule

PROMPTS = [[4], [5, 6, 7], [8, 9, 10, 11, 12], [3, 3]]
ENDS = (2, 7)
"""The model's end tokens."""


def tiny_model(folder: Path, tied: bool = True) -> Path:
    """Writes a model of 23 words whose distributions are far from uniform, with two end tokens.

    Its heads have the width 32, the least that vLLM takes on a CPU.
    """
    from transformers import LlamaForCausalLM

    folder.mkdir(exist_ok=True)
    words = folder / "words.txt"
    words.write_text(" ".join(f"w{i}" for i in range(20)))
    recipe = TinyLlama(str(words), 64, 2, 2, 128, context_length=128, tie_embeddings=tied)
    recipe.build(folder, seed=0)
    lm = LlamaForCausalLM.from_pretrained(folder)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for parameter in lm.parameters():
            if parameter.dim() == 2:
                parameter.normal_(0, 0.12)
    lm.save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": list(ENDS)}))
    return folder


def make_policy(folder: Path | str, mesh: Any = None) -> Policy:
    policy = Policy(str(folder))
    policy.build(mesh, False)
    return policy


def team(policy: Policy, engine: RolloutEngine, version: int) -> TeamModule:
    """A team of one agent, to be synchronised outside a run."""
    policy.version = version
    module = TeamModule({"team": policy}, {"agent": "team"}, ATGRPO())
    module.session = Session(engines={"team": engine})
    module.report = lambda metrics: None  # type: ignore[method-assign]
    return module


def perturb(policy: Policy, scale: float = 0.05) -> None:
    """Stands for an optimizer step: changes every weight in place."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        for parameter in policy.trainable_parameters():
            parameter.add_(scale * torch.randn_like(parameter))


def ask(
    engine: RolloutEngine,
    prompt: Sequence[int] = (4, 5),
    n: int = 1,
    seed: int = 0,
    **sampling: Any,
) -> list[Completion]:
    """Completions of one prompt; without `sampling` as the engine's default says."""
    chosen = Sampling(**sampling) if sampling else None
    return asyncio.run(engine.generate(list(prompt), n, chosen, seed))


def ask_all(engine: RolloutEngine, requests: Iterable[tuple[Any, ...]]) -> list[list[Completion]]:
    """All at once; each request is (prompt, n, sampling, seed)."""

    async def run() -> list[list[Completion]]:
        return await asyncio.gather(*(engine.generate(*request) for request in requests))

    return asyncio.run(run())


def ids(completions: Sequence[Completion]) -> list[tuple[int, ...]]:
    return [c.token_ids for c in completions]


def scored(
    policy: Policy,
    prompts: Sequence[Sequence[int]],
    answers: Sequence[Sequence[Completion]],
    temperature: float,
) -> float:
    """Largest difference between the answers' log-probs and the trainer's, packed together."""
    groups = [
        Group(
            GroupKey(f"t{i}", "a", 0),
            "",
            "",
            tuple(prompt),
            [Candidate(c, "scored") for c in completions],
        )
        for i, (prompt, completions) in enumerate(zip(prompts, answers))
    ]
    batches = pack(groups, 100_000)
    with torch.no_grad():
        differences = [policy(b, temperature)[0] - b.sampling_logprobs for b in batches]
    return max(float(d.abs().max()) for d in differences)


def difference(
    policy: Policy,
    engine: RolloutEngine,
    temperature: float,
    prompts: Sequence[Sequence[int]] = PROMPTS,
) -> float:
    """The same, of fresh answers to prompts of several lengths at once."""
    sampling = Sampling(temperature=temperature, max_tokens=12)
    answers = ask_all(engine, [(p, 3, sampling, 10 * i) for i, p in enumerate(prompts)])
    return scored(policy, prompts, answers, temperature)
