"""Between optimization steps the team is sampled, and the experience handed to the TeamModule."""

import asyncio
import time
from typing import Any

import lightning as L

from teamtune import ranks
from teamtune.callbacks.evaluation import Evaluation
from teamtune.callbacks.failures import refuse_failures
from teamtune.callbacks.run_folder import open_run_folder
from teamtune.callbacks.vocabulary import check_vocabulary
from teamtune.envs import AnswerAndRevise, Environment, TeamWork
from teamtune.errors import ConfigError
from teamtune.experience import count_tokens
from teamtune.experience.ledger import Ledger
from teamtune.inference import Sampling
from teamtune.inference.placement import EngineFactory, Placement
from teamtune.policies.models import check_models
from teamtune.ranges import NonNegativeInt, Positive, PositiveInt, Share
from teamtune.rollout import check_policy_map
from teamtune.seeds import derive_seed
from teamtune.tasks import Task
from teamtune.training import Session, TeamModule

TRIED = 4
"""Tasks whose prompts and answers are read before the first rollout."""


class RolloutCallback(Evaluation):
    """Opens the session's engines, and samples each step's tasks; evaluates as its base does."""

    def __init__(
        self,
        engine: EngineFactory,
        sampling: Sampling,
        engines: dict[str, EngineFactory] | None = None,
        evaluation_turns: PositiveInt | None = None,
        evaluation_samples: NonNegativeInt = 0,
        max_failed: Share = 0.1,
        transition_timeout: Positive = 600.0,
    ):
        """
        Args:
            engine: Makes the engine of a policy from its model folder and the sampling.
            sampling: How candidates are drawn in training. Evaluation is always greedy.
            engines: Engines of single policies, by the policy's name; the others have `engine`.
            evaluation_turns: Turns per agent in evaluation; null takes the algorithm's.
            evaluation_samples: Further episodes per evaluation task, sampled as in training, for
                the unbiased pass@k; 0 plays the greedy one alone.
            max_failed: A run stops when a larger share of the candidates of a step, or of an
                evaluation, failed.
            transition_timeout: Seconds that an environment has for a transition; one that takes
                longer has failed, and so have the candidates that it was for.

        Raises:
            ConfigError: A sampling whose distribution is not the one that the trainer scores.
        """
        sampling.check_trainable("sampling")
        super().__init__(sampling, evaluation_turns, evaluation_samples, max_failed)
        self.transition_timeout = transition_timeout
        self.placement = Placement(engine, engines or {})

    def check(self, team: TeamModule, env: Environment[Any]) -> None:
        """Raises ConfigError where agents, policies and models do not fit; writes nothing."""
        check_policy_map(env.agents, team.policy_map, list(team.policies))
        team.algorithm.check(env)
        env.check()
        self.check_turns(team, env)
        check_models(team.named_policies())
        configs = {name: policy.config() for name, policy in team.named_policies().items()}
        self.placement.check(configs, self.sampling)

    def check_turns(self, team: TeamModule, env: Environment[Any]) -> None:
        """Fewer turns than an episode has would leave it without its reward."""
        if not isinstance(env, TeamWork | AnswerAndRevise):
            return
        needed = max(sum(agent in step for step in env.schedule) for agent in env.agents)
        for key, turns in (
            ("model.algorithm.init_args.max_turns", team.algorithm.sampler.max_turns),
            ("rollout.evaluation_turns", self.evaluation_turns),
        ):
            if turns not in (None, needed):
                raise ConfigError(
                    f"{key}: got {turns}, allowed: {needed}, for so often does an agent act in an "
                    "episode of data.environment"
                )

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        team = self.team
        if team.engines:
            return
        self.check(team, self.data.environment)
        run_dir, locks = open_run_folder(trainer, team.checkpoint if stage == "fit" else None)
        policies = team.named_policies()
        for name, policy in policies.items():
            policy.prepare(run_dir / "models" / name, trainer.is_global_zero, team.seed)
        trainer.strategy.barrier("models")
        folders = {name: str(policy.folder) for name, policy in policies.items()}
        frozen = policies.keys() - team.trained().keys()
        engines = self.placement.engines(folders, self.sampling, frozen)
        runner = asyncio.Runner()
        team.session = Session(run_dir, engines, self.sampling.temperature, runner, locks)
        env, tasks = self.data.environment, self.data.held_out[:TRIED]
        check_vocabulary(env, tasks, engines, team.policy_map, self.sampling, runner)

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        env, sampler = self.data.environment, self.team.algorithm.sampler
        self.training = Ledger("rollout", env, outcome=sampler.outcome).to(self.team.device)
        cost = sampler.describe(env)
        if cost:
            self.team.print(cost)

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: list[Task], batch_idx: int
    ) -> None:
        team = self.team
        team.enter("rollout")
        began = time.monotonic()
        seed = derive_seed(team.seed, "train", team.rollout_step)
        rollouts = self.play(batch, team.algorithm.sampler, seed)
        seconds = time.monotonic() - began
        tokens = sum(ranks.gathered(count_tokens(rollouts)))
        team.take(rollouts, tokens)
        self.training.book(rollouts, seconds)
        reasons = self.training.reasons
        metrics = self.training.close()
        metrics["rollout/total_tokens"] = float(team.state.training_tokens)
        metrics["time/rollout"] = max(ranks.gathered(seconds))
        team.report(metrics)
        if metrics["rollout/too_long"]:
            team.print(
                f"step {team.rollout_step}: {metrics['rollout/too_long']:.0%} of the tasks left "
                "out, a prompt and rollout.sampling.max_tokens exceed the context"
            )
        refuse_failures(metrics.get("rollout/failed", 0.0), self.max_failed, reasons)

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        self.teardown(trainer, pl_module, "")

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        assert isinstance(pl_module, TeamModule)
        pl_module.session.close()
