"""The root LightningModule: a team's policies, their optimizers, the count of rollout steps."""

import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.utilities.rank_zero import rank_zero_only, rank_zero_warn
from torch import nn

from teamtune import ranks
from teamtune.algorithms import Algorithm
from teamtune.errors import ConfigError
from teamtune.experience import Group, Rollout, groups_of
from teamtune.inference import RolloutEngine
from teamtune.policies import Policy
from teamtune.ranges import PositiveInt
from teamtune.seeds import derive_seed
from teamtune.training.fingerprint import class_path, fingerprint
from teamtune.training.loop import MultiOptimizerLoop
from teamtune.training.resumption import configure, keep_settings
from teamtune.training.run_state import RunState, Session
from teamtune.training.silence import Silence

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
        epochs: PositiveInt = 1,
        minibatch_tasks: PositiveInt | None = None,
    ):
        """
        Args:
            policies: The sets of weights by name; each has its own optimizer and schedule.
            policy_map: From agent to policy. One policy for all is shared, one each specialized.
            algorithm: Sampler, credit and loss.
            epochs: How often the experience of a rollout is used for optimizer steps.
            minibatch_tasks: Tasks per optimizer step; null takes all of a rollout.

        Raises:
            ConfigError: No policies, or one with a name that cannot be.
        """
        super().__init__()
        if not policies:
            raise ConfigError("policies: got none, allowed: one or more")
        for name in policies:
            if not NAME.fullmatch(name) or hasattr(nn.ModuleDict, name):
                raise ConfigError(
                    f"policies.{name}: got a name that metrics, folders or modules cannot "
                    "have, allowed: letters, digits, '_' and '-', no method of torch's ModuleDict"
                )
        if algorithm.on_policy and (epochs > 1 or minibatch_tasks is not None):
            raise ConfigError(
                f"epochs: got {epochs} with minibatch_tasks {minibatch_tasks or 'null'}, allowed "
                f"with ratio: false of {type(algorithm).__name__}: 1 and null (later steps would "
                "learn from another policy's samples without correction)"
            )
        if not any(policy.trainable for policy in policies.values()):
            raise ConfigError("policies: got frozen ones alone, allowed: one or more to train")
        self.automatic_optimization = False
        self.policies = nn.ModuleDict(policies)
        self.policy_map = dict(policy_map)
        self.algorithm = algorithm
        self.loop = MultiOptimizerLoop(algorithm, epochs, minibatch_tasks)
        self.state = RunState()
        self.session = Session()
        self.silence = Silence()
        self.checkpoint: Path | None = None
        """The file that this session goes on from, as the command names it."""
        self._restored: dict[str, Any] | None = None
        self.seed = 0
        self.phase = "set-up"
        """What the run is doing, for whoever shows it."""
        self.rollouts: list[Rollout] = []
        """The latest experience: of the step that is trained on, or of an evaluation."""

    def policy(self, name: str) -> Policy:
        """The policy called `name`."""
        policy = self.policies[name]
        assert isinstance(policy, Policy)
        return policy

    def named_policies(self) -> dict[str, Policy]:
        """All policies, in the order of the configuration."""
        return {name: self.policy(name) for name in self.policies}

    def trained(self) -> dict[str, Policy]:
        """Those with an optimizer, in the order of the optimizers."""
        return {name: p for name, p in self.named_policies().items() if p.trainable}

    @property
    def rollout_step(self) -> int:
        """Steps taken."""
        return self.state.rollout_step

    @property
    def engines(self) -> dict[str, RolloutEngine]:
        """By policy; empty before the session is open."""
        return self.session.engines

    @property
    def run_dir(self) -> Path:
        """Where this session writes."""
        return self.session.run_dir

    def enter(self, phase: str) -> None:
        """Names what the run is doing now."""
        self.phase = phase

    def track(self, run_id: str | None) -> None:
        """Remembers the tracker's run."""
        self.state.run_id = run_id

    def take(self, rollouts: list[Rollout], training_tokens: int = 0) -> None:
        """Hands over experience, and counts what it cost where it is trained on."""
        self.rollouts = rollouts
        self.state.training_tokens += training_tokens

    def finish_warm_start(self) -> None:
        """The weights are those that training begins with."""
        for policy in self.trained().values():
            policy.set_reference()
        self.state.warm_started = True

    def configure_model(self) -> None:
        if ranks.world_size() > 1 and self.device_mesh is None:
            raise ConfigError(
                f"trainer.strategy: got {type(self.trainer.strategy).__name__}, which leaves ranks "
                "with gradients of their own, allowed: teamtune.strategies.FSDP2Strategy (lay "
                "configs/hardware/fsdp2.yaml over your configuration), or trainer.devices: 1"
            )
        bases: dict[str | None, Policy] = {}
        strategy = None if self._trainer is None else self._trainer.strategy
        dtype = getattr(strategy, "param_dtype", torch.float32)
        for policy in self.trained().values():
            policy.build(self.device_mesh, self.algorithm.needs_reference, dtype)
            if policy.lora is not None and self.device_mesh is None:  # a shard is small anyway
                policy.share_base(bases.setdefault(policy.folder, policy))

    def configure_optimizers(self) -> Any:
        configured = []
        for policy in self.trained().values():
            optimizer = policy.optimizer_factory(policy.trainable_parameters())
            entry: dict[str, Any] = {"optimizer": optimizer}
            if policy.scheduler_factory is not None:
                entry["lr_scheduler"] = policy.scheduler_factory(optimizer)
            configured.append(entry)
        return configured

    def on_train_start(self) -> None:
        """After a checkpoint the configuration's optimizer settings and schedules hold."""
        if self._restored is None:
            return
        for name, optimizer, schedule in self._steppers():
            before = self._restored[name]["settings"]
            policy, moved = self.policy(name), self.state.moved.get(name, 0)
            changed = configure(policy, optimizer, schedule, moved, before)
            if changed:
                shown = ", ".join(f"{key} {old} -> {new}" for key, (old, new) in changed.items())
                self.print(f"policy {name} goes on with another optimizer setting: {shown}")
        self._restored = None

    def _steppers(self) -> Iterator[tuple[str, Any, Any]]:
        """Each trained policy's name, its optimizer, and its schedule or None."""
        schedules = iter(self._listed(self.lr_schedulers()))
        for (name, policy), optimizer in zip(
            self.trained().items(), self._listed(self.optimizers())
        ):
            has = policy.scheduler_factory is not None
            yield name, optimizer, next(schedules) if has else None

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """One rollout's credit, and the update of every policy. A callback has brought rollouts."""
        self.enter("update")
        began = time.monotonic()
        self.algorithm.assign_credit(self.rollouts)
        self._listen()
        experience: dict[str, list[Group]] = {name: [] for name in self.policies}
        for group in groups_of(self.rollouts):
            experience[group.policy].append(group)
        optimizers = {name: optimizer for name, optimizer, _ in self._steppers()}
        metrics = self.loop.run(
            self.trained(),
            optimizers,
            experience,
            self.session.temperature,
            derive_seed(self.seed, "minibatches", self.rollout_step),
            self.device,
        )
        for name, optimizer, schedule in self._steppers():
            metrics[f"{name}/lr"] = optimizer.param_groups[0]["lr"]
            stepped = f"{name}/loss" in metrics
            metrics[f"{name}/stepped"] = float(stepped)
            if stepped:
                self.state.moved[name] = self.state.moved.get(name, 0) + 1
                if schedule is not None:  # it belongs to the steps of its optimizer
                    schedule.step()
        self.algorithm.advance()
        metrics["time/update"] = time.monotonic() - began
        self.state.rollout_step += 1
        self.report(metrics)

    def _listen(self) -> None:
        """Warns of agents that no step has taught anything."""
        credited: dict[str, bool] = {}
        for group in groups_of(self.rollouts):
            if not self.policy(group.policy).trainable:
                continue
            heard = any(c.credited for c in group.candidates)
            credited[group.key.agent] = credited.get(group.key.agent, False) or heard
        over_ranks: dict[str, bool] = {}
        for part in ranks.gathered(credited):
            for agent, heard in part.items():
                over_ranks[agent] = over_ranks.get(agent, False) or heard
        for warning in self.silence.observe(over_ranks):
            rank_zero_warn(f"step {self.rollout_step}: {warning}")

    @staticmethod
    def _listed(value: Any) -> list[Any]:
        return [] if value is None else list(value) if isinstance(value, Sequence) else [value]

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """A callback has played, and booked, the batch's episodes."""

    test_step = validation_step

    def predict_step(self, batch: Any, batch_idx: int) -> list[Rollout]:
        return self.rollouts

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
            **self.state.state_dict(),
            "policy_map": self.policy_map,
            "versions": {name: p.version for name, p in self.named_policies().items()},
            "algorithm": self.algorithm.state_dict(),
        }
        states = checkpoint.get("optimizer_states", [])  # none where weights alone are saved
        checkpoint["fingerprint"] = {
            "algorithm": class_path(self.algorithm),
            "policies": {name: fingerprint(policy) for name, policy in self.trained().items()},
            "remembered": [len(state["state"]) for state in states],
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        team = checkpoint["team"]
        self.state = RunState.restored(team)
        for name, version in team["versions"].items():
            self.policy(name).version = version
        self.algorithm.load_state_dict(team["algorithm"])
        self._restored = checkpoint["fingerprint"]["policies"]
        checkpoint["lr_schedulers"] = []  # walked anew, see `configure`
        callbacks = self.trainer.callbacks  # type: ignore[attr-defined]
        keep_settings(callbacks, checkpoint.get("callbacks", {}))
