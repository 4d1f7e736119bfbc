"""The names of all metrics that a run will log, found by booking one made-up answer."""

from collections.abc import Iterable

import torch

from teamtune.algorithms import Algorithm, TokenBatch
from teamtune.envs import Environment
from teamtune.experience import Candidate, Group, GroupKey, Rollout, Score, Turn
from teamtune.experience.ledger import Ledger
from teamtune.inference import Completion
from teamtune.training import TeamModule

TIMES = ("evaluation", "rollout", "sync", "update", "warm_start")
OF_POLICY = (
    *("approx_kl", "entropy", "flat_groups", "grad_norm", "loss", "lr", "sampling_gap"),
    *("probe_max", "probe_mean", "stepped", "tokens", "warm_start_loss"),
)


def metric_names(module: TeamModule, env: Environment, samples: int) -> set[str]:
    """Of training and evaluation alike.

    Args:
        module: The team.
        env: Its environment.
        samples: Further episodes per evaluation task, for pass@k.
    """
    names = {f"time/{name}" for name in TIMES} | {"rollout/total_tokens"}
    outcome = module.algorithm.sampler.outcome
    for ledger in (Ledger("val", env, samples), Ledger("rollout", env, outcome=outcome)):
        ledger.book([_rollout(env.agents)], 1.0)
        if ledger.passes is not None:
            ledger.book_samples([_rollout(env.agents)] * samples)
        names |= ledger.close().keys()
    for policy in module.trained():
        names |= {f"{policy}/{name}" for name in (*OF_POLICY, *_of_loss(module.algorithm))}
    return names


def _rollout(agents: Iterable[str]) -> Rollout:
    completion = Completion((0,), (0.0,), "", "stop", 0)
    groups = []
    for agent in agents:
        candidate = Candidate(completion, "scored", score=Score(0.0, 0.0, 0.0))
        groups.append(Group(GroupKey("task", agent, 0), "", "", (0,), [candidate]))
    return Rollout("task", Turn(None, groups, []))


def _of_loss(algorithm: Algorithm) -> set[str]:
    nothing = torch.zeros(1)
    batch = TokenBatch(
        logprobs=nothing,
        sampling_logprobs=nothing,
        advantages=nothing,
        weight=nothing,
        count=nothing,
        sequence=torch.zeros(1, dtype=torch.long),
        entropy=nothing,
        ref_logprobs=nothing,
    )
    return algorithm.loss(batch)[1].keys() | algorithm.regularizer(batch)[1].keys()
