"""The root LightningModule: a team's policies, their optimizers, the count of rollout steps."""

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.utilities.rank_zero import rank_zero_only
from torch import nn

from teamtune import ranks
from teamtune.algorithms import Algorithm
from teamtune.errors import ConfigError, at_least
from teamtune.experience import Group, Rollout
from teamtune.experience.metrics import GenerationCost, JointReturn, PassAtK, SuccessRate
from teamtune.inference import RolloutEngine
from teamtune.policies import Policy
from teamtune.seeds import derive_seed
from teamtune.training.loop import MultiOptimizerLoop

NAME = re.compile(r"[A-Za-z0-9_-]+")


class TeamModule(L.LightningModule):
    """Agents, the policies that answer for them, and the algorithm that trains those.

    Lightning's `global_step` counts every optimizer's steps; limits, checkpoints, evaluation and
    logging go by `rollout_step`, and one Lightning epoch is one rollout step.
    """

    def __init__(
        self,
        policies: dict[str, Policy],
        policy_map: dict[str, str],
        algorithm: Algorithm,
        epochs: int = 1,
        minibatch_tasks: int | None = None,
    ):
        """
        Args:
            policies: The sets of weights by name; each has its own optimizer and schedule.
            policy_map: From agent to policy. One policy for all is shared, one each specialized.
            algorithm: Sampler, credit and loss.
            epochs: How often the experience of a rollout is used for optimizer steps.
            minibatch_tasks: Tasks per optimizer step; null takes all of a rollout.

        Raises:
            ConfigError: No policies, or a value out of its range.
        """
        super().__init__()
        if not policies:
            raise ConfigError("model.policies: got none, allowed: one or more")
        for name in policies:
            if not NAME.fullmatch(name) or hasattr(nn.ModuleDict, name):
                raise ConfigError(
                    f"model.policies.{name}: got a name that metrics, folders or modules cannot "
                    "have, allowed: letters, digits, '_' and '-', no method of torch's ModuleDict"
                )
        at_least(1, "model.", epochs=epochs, minibatch_tasks=minibatch_tasks)
        self.automatic_optimization = False
        self.policies = nn.ModuleDict(policies)
        self.policy_map = dict(policy_map)
        self.algorithm = algorithm
        self.loop = MultiOptimizerLoop(algorithm, epochs, minibatch_tasks)
        self.success = SuccessRate()
        self.cost = GenerationCost()
        self.levels: JointReturn | None = None
        """Where the environment's rewards have levels."""
        self.passes: PassAtK | None = None
        """Where evaluation samples further episodes."""
        self.rollout_step = 0
        self.warm_started = False
        self.training_tokens = 0
        """Tokens generated for training so far, over all ranks."""
        self.elapsed = 0.0
        """Seconds of training and evaluation up to the last checkpoint that was loaded."""
        self.run_id: str | None = None
        """The MLflow run, kept in checkpoints so that a resumed run stays one run."""
        self.started = time.monotonic()
        self.run_dir = Path(".")
        self.phase = "set-up"
        self.seed = 0
        self.temperature = 1.0
        self.engines: dict[str, RolloutEngine] = {}
        self.experience: list[Group] = []
        self.rollouts: list[Rollout] = []

    def policy(self, name: str) -> Policy:
        """The policy called `name`."""
        policy = self.policies[name]
        assert isinstance(policy, Policy)
        return policy

    def named_policies(self) -> dict[str, Policy]:
        """All policies, in the order of their optimizers."""
        return {name: self.policy(name) for name in self.policies}

    @property
    def seconds(self) -> float:
        """Wall time of the run, earlier sessions included."""
        return self.elapsed + time.monotonic() - self.started

    def configure_model(self) -> None:
        if ranks.world_size() > 1 and self.device_mesh is None:
            raise ConfigError(
                f"trainer.strategy: got {type(self.trainer.strategy).__name__}, which leaves ranks "
                "with gradients of their own, allowed: teamtune.strategies.FSDP2Strategy (lay "
                "configs/hardware/fsdp2.yaml over your configuration), or trainer.devices: 1"
            )
        bases: dict[str | None, Policy] = {}
        for policy in self.named_policies().values():
            policy.build(self.device_mesh, self.algorithm.needs_reference)
            if policy.lora is not None and self.device_mesh is None:  # a shard is small anyway
                policy.share_base(bases.setdefault(policy.folder, policy))

    def configure_optimizers(self) -> Any:
        configured = []
        for policy in self.named_policies().values():
            optimizer = policy.optimizer(policy.trainable_parameters())
            entry: dict[str, Any] = {"optimizer": optimizer}
            if policy.scheduler is not None:
                entry["lr_scheduler"] = policy.scheduler(optimizer)
            configured.append(entry)
        return configured

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """One rollout's update of every policy. The rollout callback has left the experience."""
        self.phase = "update"
        began = time.monotonic()
        experience: dict[str, list[Group]] = {name: [] for name in self.policies}
        for group in self.experience:
            experience[group.policy].append(group)
        optimizers = dict(zip(self.policies, self._listed(self.optimizers())))
        metrics = self.loop.run(
            self.named_policies(),
            optimizers,
            experience,
            self.temperature,
            derive_seed(self.seed, "minibatches", self.rollout_step),
            self.device,
        )
        schedulers = iter(self._listed(self.lr_schedulers()))
        for name, optimizer in optimizers.items():
            metrics[f"{name}/lr"] = optimizer.param_groups[0]["lr"]
            if self.policy(name).scheduler is not None:
                next(schedulers).step()
        metrics["time/update"] = time.monotonic() - began
        self.rollout_step += 1
        self.experience = []
        self.report(metrics)

    @staticmethod
    def _listed(value: Any) -> list[Any]:
        return [] if value is None else list(value) if isinstance(value, Sequence) else [value]

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Counts the outcomes of the episodes that the rollout callback has played."""
        self.success.update([rollout.success for rollout in self.rollouts])
        if self.levels is not None:
            nothing = dict.fromkeys(self.levels.maxima, 0.0)
            self.levels.update([rollout.levels or nothing for rollout in self.rollouts])

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.validation_step(batch, batch_idx)

    def predict_step(self, batch: Any, batch_idx: int) -> list[Rollout]:
        return self.rollouts

    def evaluation(self) -> dict[str, float]:
        """What the metrics say since they were last asked, over all ranks, as `val/<name>`."""
        found: dict[str, float] = {}
        for metric in (self.success, self.cost, self.levels, self.passes):
            if metric is not None:
                found |= {f"val/{name}": value for name, value in metric.compute().items()}
                metric.reset()
        return found

    @property
    def shares(self) -> list[str]:
        """Names of what `evaluation` tells beside success and the joint reward, 0 to 1 each."""
        groups = [] if self.levels is None else [*self.levels.groups]
        return groups + ([] if self.passes is None else [f"pass_at_{k}" for k in self.passes.ks])

    def report(self, metrics: dict[str, float]) -> None:
        """Logs metrics against the rollout step, and keeps them for callbacks to monitor."""
        for name, value in metrics.items():
            self.trainer.callback_metrics[name] = torch.tensor(value, dtype=torch.float64)
        self._log(metrics)

    @rank_zero_only
    def _log(self, metrics: dict[str, float]) -> None:
        for logger in self.trainer.loggers:
            logger.log_metrics(metrics, step=self.rollout_step)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["team"] = {
            "rollout_step": self.rollout_step,
            "warm_started": self.warm_started,
            "training_tokens": self.training_tokens,
            "seconds": self.seconds,
            "run_id": self.run_id,
            "policy_map": self.policy_map,
            "lora_alpha": {n: p.lora.alpha for n, p in self.named_policies().items() if p.lora},
            "versions": {name: p.version for name, p in self.named_policies().items()},
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        team = checkpoint["team"]
        self.rollout_step = team["rollout_step"]
        self.warm_started = team["warm_started"]
        self.training_tokens = team["training_tokens"]
        self.elapsed = team["seconds"]
        self.started = time.monotonic()
        self.run_id = team["run_id"]
        for name, version in team["versions"].items():
            self.policy(name).version = version
