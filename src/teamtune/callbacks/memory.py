"""Says before anything is loaded what memory a run will take, and refuses what a GPU has not."""

import lightning as L
import torch
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from teamtune.callbacks.base import TeamCallback
from teamtune.callbacks.disk import remembered
from teamtune.callbacks.rollout import RolloutCallback
from teamtune.errors import ConfigError
from teamtune.policies import Policy
from teamtune.ranges import NonNegative
from teamtune.strategies import FSDP2Strategy
from teamtune.training import TeamModule
from teamtune.training.memory import GIB, Learner, Plan, Precision, Shape, plan


class MemoryPlan(TeamCallback):
    """Prints a rank's memory; on a GPU that lacks it the run ends before it begins."""

    def __init__(self, force: bool = False, reserve_gib: NonNegative = 1.5):
        """
        Args:
            force: Begin even where the plan does not fit the GPU.
            reserve_gib: What a GPU needs beside the plan: its driver's context and libraries.
        """
        self.force = force
        self.reserve_gib = reserve_gib

    def check(
        self, team: TeamModule, trainer: L.Trainer, rollout: RolloutCallback, tasks: int
    ) -> None:
        """Prints the plan; raises ConfigError where it does not fit.

        Args:
            team: Nothing of it is loaded.
            trainer: Its strategy shares the weights out.
            rollout: Has the engines.
            tasks: Those of a step.
        """
        device, on_gpu = None, trainer.strategy.root_device.type == "cuda"
        if on_gpu:
            device = torch.cuda.get_device_properties(trainer.strategy.root_device).total_memory
        ranks, precision = trainer.num_nodes * trainer.num_devices, _precision(trainer)
        found = planned(team, rollout, tasks, device, precision, ranks, trainer.num_devices)
        rank_zero_only(print)(found)
        if device is not None and not self.force:
            refuse(found, device, self.reserve_gib)


def refuse(found: Plan, device: int, reserve_gib: float) -> None:
    """Raises ConfigError where a plan and what is reserved are more than `device` bytes."""
    if found.peak + reserve_gib * GIB <= device:
        return
    keys = "model.policies.<name>.init_args.token_budget"
    if not found.checkpointing:
        keys += " (or gradient_checkpointing: true)"
    if found.engines > found.activations:
        keys = f"rollout.engine.init_args.gpu_memory_utilization, or {keys}"
    raise ConfigError(
        f"memory: {found.peak / GIB:.1f} GiB and {reserve_gib:g} in reserve exceed the GPU's "
        f"{device / GIB:.1f} (engines {found.engines / GIB:.1f}, activations "
        f"{found.activations / GIB:.1f}, weights and optimizers "
        f"{(found.masters + found.optimizer + found.gradients) / GIB:.1f}); lower {keys}, take "
        "more trainer.devices, or try with memory.force: true"
    )


def planned(
    team: TeamModule,
    rollout: RolloutCallback,
    tasks: int,
    device: int | None,
    precision: Precision,
    ranks: int,
    local_ranks: int,
) -> Plan:
    """What a rank of the team takes.

    Args:
        team: Its policies, of which nothing is loaded.
        rollout: Has the engines.
        tasks: Those of a step, over all ranks.
        device: Bytes of a GPU; None without one.
        precision: In which the update computes.
        ranks: Those that share the weights.
        local_ranks: Those on one host.
    """
    policies = team.named_policies()
    learners, bases = [], set()
    for policy in team.trained().values():
        known = policy.lora is not None and ranks == 1 and policy.source in bases
        learners.append(_learner(policy, team.algorithm.needs_reference, known, device))
        if policy.lora is not None:
            bases.add(policy.source)
    engines = rollout.placement.memory(
        {name: policy.config() for name, policy in policies.items()},
        rollout.sampling,
        -(-tasks // ranks) * team.algorithm.sampler.num_candidates,
        device,
        {name: str(p.source) for name, p in policies.items() if not p.trainable},
    )
    return plan(learners, engines, precision, ranks, local_ranks)


def _learner(policy: Policy, reference: bool, known: bool, device: int | None) -> Learner:
    shape, trained = Shape.of(policy.config()), 0
    if policy.lora is None:
        trained = shape.weights
    else:
        trained = sum(s.numel() for name, s in policy.shapes().items() if ".lora_" in name)
    optimizer = policy.optimizer_factory([torch.nn.Parameter(torch.zeros(1))])
    by_itself = optimizer.defaults.get("fused") or device is None  # else a step makes as many
    return Learner(
        shape=shape,
        trained=trained,
        remembered=remembered(policy),
        scratch=0.0 if by_itself else 1.0,
        copies=0 if known else 2 if reference and policy.lora is None else 1,
        token_budget=policy.token_budget,
        head_chunk=policy.head_chunk,
        head_kept=GIB * policy.head_kept_gib,
        checkpointing=policy.gradient_checkpointing,
    )


def _precision(trainer: L.Trainer) -> Precision:
    if trainer.precision == "bf16-mixed":
        return "autocast"
    strategy = trainer.strategy
    half = isinstance(strategy, FSDP2Strategy) and strategy.param_dtype == torch.bfloat16
    return "bfloat16" if half else "float32"
