"""The rollout callback: between two optimization steps it samples the team on the step's tasks."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lightning as L

from teamtune import ranks
from teamtune.callbacks.run_folder import new_run_folder
from teamtune.envs import Environment, TeamWork
from teamtune.errors import ConfigError, at_least
from teamtune.experience import Rollout, count_tokens
from teamtune.experience.metrics import JointReturn, PassAtK
from teamtune.inference import HFChat, RolloutEngine, Sampling
from teamtune.rollout import Sampler, TrajectorySampler, check_policy_map, collect
from teamtune.rollout.statistics import merged, summarize
from teamtune.seeds import derive_seed
from teamtune.tasks import Task
from teamtune.training import TeamModule

EngineFactory = Callable[[str, Sampling], RolloutEngine]


class RolloutCallback(L.Callback):
    """Owns one engine per policy and leaves each step's experience with the TeamModule."""

    def __init__(
        self,
        engine: EngineFactory,
        sampling: Sampling,
        evaluation_turns: int | None = None,
        evaluation_samples: int = 0,
        max_failed: float = 0.1,
    ):
        """
        Args:
            engine: Makes the engine of a policy from its model folder and the sampling.
            sampling: How candidates are drawn in training. Evaluation is always greedy.
            evaluation_turns: Turns per agent in evaluation; null takes the algorithm's.
            evaluation_samples: Further episodes per evaluation task, sampled as in training, for
                the unbiased pass@k; 0 plays the greedy one alone.
            max_failed: A run stops when a larger share of the candidates of a step, or of an
                evaluation, failed.

        Raises:
            ConfigError: A sampling whose distribution is not the one that the trainer scores.
        """
        sampling.check_trainable("rollout.sampling")
        if not 0 <= max_failed <= 1:
            raise ConfigError(f"rollout.max_failed: got {max_failed}, allowed: 0 to 1")
        at_least(1, "rollout.", evaluation_turns=evaluation_turns)
        at_least(0, "rollout.", evaluation_samples=evaluation_samples)
        self.engine = engine
        self.sampling = sampling
        self.evaluation_turns = evaluation_turns
        self.evaluation_samples = evaluation_samples
        self.max_failed = max_failed
        self._evaluated = 0.0
        self._evaluation: list[Any] = []
        self._failures: set[str] = set()

    def check(self, module: TeamModule, env: Environment[Any]) -> None:
        """Raises ConfigError where agents, policies and models do not fit; writes nothing."""
        check_policy_map(env.agents, module.policy_map, list(module.policies))
        module.algorithm.check(env)
        env.check()
        self._check_turns(module, env)
        for name, policy in module.named_policies().items():
            if isinstance(policy.model, str):
                if _names_no_folder(policy.model):
                    raise ConfigError(
                        f"model.policies.{name}.init_args.model: cannot load {policy.model!r}: "
                        "no such folder"
                    )
                try:
                    HFChat(policy.model)
                except ConfigError as error:
                    raise ConfigError(f"model.policies.{name}.init_args.{error}") from error
                except OSError as error:
                    raise ConfigError(
                        f"model.policies.{name}.init_args.model: cannot load {policy.model!r}: "
                        f"{str(error).splitlines()[0]}"
                    ) from error
            try:
                policy.check()
            except ConfigError as error:
                raise ConfigError(f"model.policies.{name}.init_args.{error}") from error

    def _check_turns(self, module: TeamModule, env: Environment[Any]) -> None:
        """Fewer turns than an episode has would leave it without its reward."""
        if not isinstance(env, TeamWork):
            return
        needed = max(sum(agent in step for step in env.schedule) for agent in env.agents)
        for key, turns in (
            ("model.algorithm.init_args.max_turns", module.algorithm.sampler.max_turns),
            ("rollout.evaluation_turns", self.evaluation_turns),
        ):
            if turns not in (None, needed):
                raise ConfigError(
                    f"{key}: got {turns}, allowed: {needed}, for so often does an agent act in an "
                    "episode of data.environment"
                )

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        module = _team(pl_module)
        if module.engines:
            return
        env = _environment(trainer)
        self.check(module, env)
        module.temperature = self.sampling.temperature
        module.levels = JointReturn(env.maxima, env.shares) if isinstance(env, TeamWork) else None
        if self.evaluation_samples:
            module.passes = PassAtK(range(1, self.evaluation_samples + 1))
        module.run_dir = new_run_folder(trainer)
        for name, policy in module.named_policies().items():
            folder = module.run_dir / "models" / name
            policy.prepare(folder, trainer.is_global_zero, module.seed)
        trainer.strategy.barrier("models")
        module.engines = {
            name: self.engine(str(policy.folder), self.sampling)
            for name, policy in module.named_policies().items()
        }

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        module = _team(pl_module)
        cost = module.algorithm.sampler.describe(_environment(trainer))
        if cost:
            module.print(cost)

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: list[Task], batch_idx: int
    ) -> None:
        module = _team(pl_module)
        module.phase = "rollout"
        began = time.monotonic()
        seed = derive_seed(module.seed, "train", module.rollout_step)
        rollouts = self._collect(trainer, module, batch, module.algorithm.sampler, seed)
        groups = [group for rollout in rollouts for group in rollout.groups]
        module.algorithm.assign_credit(groups)
        module.rollouts, module.experience = rollouts, groups
        seconds = time.monotonic() - began
        levels = () if module.levels is None else (*module.levels.maxima, "total")
        told = summarize(rollouts, "rollout", levels)
        parts = ranks.gathered((told, count_tokens(rollouts), seconds))
        metrics = merged(part[0] for part in parts)
        tokens, slowest = sum(part[1] for part in parts), max(part[2] for part in parts)
        module.training_tokens += tokens
        metrics["rollout/tokens"] = float(tokens)
        metrics["rollout/tokens_per_second"] = tokens / slowest
        metrics["rollout/total_tokens"] = float(module.training_tokens)
        metrics["time/rollout"] = slowest
        module.report(metrics)
        if metrics["rollout/too_long"]:
            module.print(
                f"step {module.rollout_step}: {metrics['rollout/too_long']:.0%} of the tasks left "
                "out, a prompt and rollout.sampling.max_tokens exceed the context"
            )
        self._refuse_failures(metrics.get("rollout/failed", 0.0), _failures(rollouts))

    def on_validation_batch_start(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        batch: list[Task],
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        module = _team(pl_module)
        module.phase = "evaluation"
        began = time.monotonic()
        turns = self.evaluation_turns
        if turns is None:
            turns = module.algorithm.sampler.max_turns
        seed = derive_seed(module.seed, "evaluation")
        module.rollouts = self._collect(trainer, module, batch, TrajectorySampler(turns), seed)
        seconds = time.monotonic() - began
        self._evaluated += seconds
        module.cost.update(count_tokens(module.rollouts), seconds, len(batch))
        if module.passes is not None:
            sampler = TrajectorySampler(turns, self.sampling)
            sampled = [
                self._collect(trainer, module, batch, sampler, derive_seed(seed, i))
                for i in range(self.evaluation_samples)
            ]
            module.passes.update([[r.success for r in of_task] for of_task in zip(*sampled)])
            for rollouts in sampled:
                failed = summarize(rollouts, "val").get("val/failed", (0.0, 0))
                self._evaluation.append(({"val/failed": failed}, 0))
                self._failures |= _failures(rollouts)
        self._evaluation.append((summarize(module.rollouts, "val"), count_tokens(module.rollouts)))
        self._failures |= _failures(module.rollouts)

    on_test_batch_start = on_validation_batch_start
    on_predict_batch_start = on_validation_batch_start

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._evaluated, self._evaluation, self._failures = 0.0, [], set()

    on_test_start = on_validation_start

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        module = _team(pl_module)
        parts = ranks.gathered((self._evaluation, self._evaluated))
        metrics = merged(sums for part in parts for sums, _ in part[0])
        metrics |= module.evaluation()
        metrics["val/tokens"] = float(sum(n for part in parts for _, n in part[0]))
        metrics["time/evaluation"] = max(part[1] for part in parts)
        module.report(metrics)
        self._refuse_failures(metrics.get("val/failed", 0.0), self._failures)
        if metrics.get("val/too_long", 0.0) == 1:
            raise RuntimeError(
                "no task could be evaluated: every prompt and rollout.sampling.max_tokens exceed "
                "the context"
            )

    on_test_epoch_end = on_validation_epoch_end

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        self.teardown(trainer, pl_module, "")

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        module = _team(pl_module)
        for engine in module.engines.values():
            engine.close()
        module.engines = {}

    def _refuse_failures(self, share: float, reasons: set[str]) -> None:
        if share > self.max_failed:
            raise RuntimeError(
                f"{share:.0%} of the candidates failed, more than "
                f"rollout.max_failed = {self.max_failed:.0%}: {'; '.join(sorted(reasons)[:3])}"
            )

    @staticmethod
    def _collect(
        trainer: L.Trainer,
        module: TeamModule,
        tasks: Sequence[Task],
        sampler: Sampler,
        seed: int,
    ) -> list[Rollout]:
        env = _environment(trainer)
        return collect(env, tasks, sampler, module.engines, module.policy_map, seed)


def _names_no_folder(model: str) -> bool:
    """Whether it is the path of a folder that is not there, by its look; the hub is not asked."""
    path = Path(model)
    looks_local = model.startswith((".", "/")) or (len(path.parts) > 1 and path.parent.is_dir())
    return looks_local and not path.is_dir()


def _failures(rollouts: Sequence[Rollout]) -> set[str]:
    """Why candidates failed."""
    candidates = (c for rollout in rollouts for group in rollout.groups for c in group.candidates)
    return {c.error or c.stop_reason for c in candidates if c.reward is None}


def _environment(trainer: L.Trainer) -> Environment[Any]:
    return trainer.datamodule.environment  # type: ignore[attr-defined]


def _team(module: L.LightningModule) -> TeamModule:
    assert isinstance(module, TeamModule)
    return module
