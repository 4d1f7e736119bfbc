"""Training a team on a toy from nothing, without Lightning around it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from teamtune.algorithms import Algorithm
from teamtune.envs import Environment
from teamtune.experience import Rollout, groups_of
from teamtune.inference import RolloutEngine, Sampling, TransformersEngine
from teamtune.policies import Policy, TinyLlama
from teamtune.rollout import TrajectorySampler, collect
from teamtune.tasks import Task
from teamtune.training import MultiOptimizerLoop

RECIPE = TinyLlama(["{a,b,c,d,first,second,?}"], 32, 1, 2, 64, context_length=16)


def learn(
    env: Environment[Any],
    tasks: Sequence[Task],
    policy_map: Mapping[str, str],
    algorithm: Algorithm,
    folder: Path,
    steps: int,
) -> tuple[float, float]:
    """The share of `tasks` that the team solves greedily before, and after `steps` updates."""
    torch.set_num_threads(1)
    policies: dict[str, Policy] = {}
    engines: dict[str, RolloutEngine] = {}
    optimizers = {}
    for seed, name in enumerate(dict.fromkeys(policy_map.values())):
        RECIPE.build(folder / name, seed)
        policy = policies[name] = Policy(str(folder / name))
        policy.build(None, with_reference=False)
        engines[name] = TransformersEngine(str(folder / name), Sampling(max_tokens=2))
        optimizers[name] = torch.optim.Adam(policy.trainable_parameters(), lr=5e-3)
    loop = MultiOptimizerLoop(algorithm)

    def success() -> float:
        sampler = TrajectorySampler(1, algorithm.sampler.max_turns)
        rollouts = collect(env, tasks, sampler, engines, policy_map)
        return sum(rollout.success for rollout in rollouts) / len(tasks)

    before = success()
    for step in range(steps):
        rollouts = collect(env, tasks, algorithm.sampler, engines, policy_map, seed=step)
        algorithm.assign_credit(rollouts)
        groups = groups_of(rollouts)
        experience = {name: [g for g in groups if g.policy == name] for name in policies}
        loop.run(policies, optimizers, experience, 1.0, step, torch.device("cpu"))
        for name, policy in policies.items():
            engines[name].load_weights(policy.full_weights(), policy.version)
    return before, success()


def update(
    policies: Mapping[str, Policy], rollouts: Sequence[Rollout], algorithm: Algorithm
) -> tuple[dict[str, float], list[list[Tensor]]]:
    """One update with credit assigned; metrics, and how far each policy's weights moved."""
    algorithm.assign_credit(rollouts)
    groups = groups_of(rollouts)
    before = [[p.detach().clone() for p in m.trainable_parameters()] for m in policies.values()]
    optimizers = {n: p.optimizer_factory(p.trainable_parameters()) for n, p in policies.items()}
    experience = {n: [g for g in groups if g.policy == n] for n in policies}
    loop = MultiOptimizerLoop(algorithm)
    metrics = loop.run(policies, optimizers, experience, 1.0, 0, torch.device("cpu"))
    moved = [
        [p.detach() - old for p, old in zip(m.trainable_parameters(), olds)]
        for m, olds in zip(policies.values(), before)
    ]
    return metrics, moved


def close(own: Sequence[Tensor], other: Sequence[Tensor]) -> None:
    """Two sets of weights, or moves of them, agree."""
    for a, b in zip(own, other, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-4)
