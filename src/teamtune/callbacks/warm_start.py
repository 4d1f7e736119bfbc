"""A warm start clones a demonstrator for a while; it stands in for pre-training of tiny models."""

import random
import time
from collections.abc import Sequence
from typing import Any, Protocol

import lightning as L
import torch

from teamtune.algorithms.cloning import Cloning
from teamtune.callbacks.base import TeamCallback
from teamtune.envs import Environment
from teamtune.errors import ConfigError
from teamtune.experience import Candidate, Group, GroupKey, Rollout, Turn, groups_of
from teamtune.inference import Completion
from teamtune.policies.policy import OptimizerCallable, check_optimizer
from teamtune.ranges import PositiveInt
from teamtune.rollout import Game, Played, Sampler, Team, collect
from teamtune.seeds import derive_seed
from teamtune.tasks import Task
from teamtune.training import MultiOptimizerLoop, TeamModule

FIRST_INDEX = 1_000_000_000
"""Warm-start tasks are training tasks from here on; of an endless source no rollout has them."""


class Demonstrator(Protocol):
    """Something that can answer for an agent, well or badly."""

    def answer(self, env: Any, state: Any, agent: str, rng: random.Random) -> str:
        """An answer of `agent` in `state`."""


class Demonstration(Sampler):
    """Episodes in which a demonstrator answers; the first of its answers to a prompt is played."""

    def __init__(self, demonstrator: Demonstrator, answers: int, max_turns: int):
        self.demonstrator = demonstrator
        self.num_candidates = answers
        self.max_turns = max_turns

    async def sample(
        self, env: Environment[Any], task: Task, team: Team, seed: int
    ) -> list[Rollout]:
        first = await self.grow(Game(env, task, team, seed), env.reset(task))
        return [Rollout(task.id, first)]

    async def ask(self, game: Game, state: Any, key: GroupKey) -> Group:
        policy, engine = game.team.of(key.agent)
        rng = random.Random(derive_seed(game.seed, "demonstration", key))
        texts = [
            self.demonstrator.answer(game.env, state, key.agent, rng)
            for _ in range(self.num_candidates)
        ]
        messages = game.env.observe(state, key.agent)
        answers = [demonstration(engine.chat.encode_answer(text), text) for text in texts]
        prompt = "\n".join(message["content"] for message in messages)
        return Group(key, policy, prompt, tuple(engine.chat.encode(messages)), answers)

    def pairs(self, agents: int) -> list[tuple[int, ...]]:
        return [(0,) * agents]

    def score(self, turn: Turn, played: Sequence[Played]) -> list[Played]:
        return list(played)

    async def carry(
        self, game: Game, turn: Turn, played: Sequence[Played], left: int
    ) -> list[Played]:
        if not played:
            reason = turn.groups[0].candidates[0].reason
            raise RuntimeError(
                f"task {game.task.id}: a demonstration could not be played: {reason}"
            )
        return list(played)


def demonstration(token_ids: Sequence[int], text: str) -> Candidate:
    """A candidate that nobody sampled: log-prob 0."""
    ids = tuple(token_ids)
    return Candidate(Completion(ids, (0.0,) * len(ids), text, "stop", 0), "scored")


class WarmStart(TeamCallback):
    """Before the first rollout, every policy clones a demonstrator on training tasks."""

    def __init__(
        self,
        demonstrator: Demonstrator,
        steps: PositiveInt,
        tasks_per_step: PositiveInt = 64,
        answers_per_prompt: PositiveInt = 1,
        max_turns: PositiveInt = 4,
        optimizer: OptimizerCallable = lambda p: torch.optim.AdamW(p, lr=2e-3, weight_decay=0.0),
    ):
        """
        Args:
            demonstrator: Who is cloned.
            steps: Optimizer steps of each policy.
            tasks_per_step: Episodes that are demonstrated per step, over all ranks.
            answers_per_prompt: Answers that are demonstrated to every prompt; the first is played.
            max_turns: Turns per agent in a demonstrated episode.
            optimizer: From parameters to an optimizer; its learning rate falls linearly to 0.
        """
        check_optimizer(optimizer)
        self.sampler = Demonstration(demonstrator, answers_per_prompt, max_turns)
        self.steps = steps
        self.tasks_per_step = tasks_per_step
        self.optimizer = optimizer

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        self.check(self.team)

    def check(self, team: TeamModule) -> None:
        """Raises ConfigError where the team cannot be trained after a warm start."""
        adapted = any(p.lora is not None for p in team.named_policies().values())
        if adapted and team.algorithm.needs_reference:
            raise ConfigError(
                "model.algorithm.init_args.kl_coef: allowed with lora and a warm start: 0 (the "
                "reference is the model without its adapter, and the warm start is in the adapter)"
            )

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        team = self.team
        if team.state.warm_started:
            return
        team.enter("warm start")
        began = time.monotonic()
        policies = team.trained()
        optimizers = {n: self.optimizer(p.trainable_parameters()) for n, p in policies.items()}
        schedules = [
            torch.optim.lr_scheduler.LinearLR(o, 1.0, 0.0, self.steps) for o in optimizers.values()
        ]
        cloning = Cloning()
        loop = MultiOptimizerLoop(cloning)
        metrics: dict[str, float] = {}
        for step in range(self.steps):
            rollouts = self.demonstrate(step)
            cloning.assign_credit(rollouts)
            groups = groups_of(rollouts)
            experience = {n: [g for g in groups if g.policy == n] for n in policies}
            metrics = loop.run(policies, optimizers, experience, 1.0, 0, team.device)
            for schedule in schedules:
                schedule.step()
            if step == 0 or (step + 1) % max(1, self.steps // 5) == 0:
                losses = {n: metrics.get(f"{n}/loss", 0.0) for n in policies}
                shown = ", ".join(f"{n} {loss:.3f}" for n, loss in losses.items())
                team.print(f"warm start {step + 1}/{self.steps}: loss of {shown}")
        team.finish_warm_start()
        losses = {f"{n}/warm_start_loss": metrics.get(f"{n}/loss", 0.0) for n in policies}
        team.report(losses | {"time/warm_start": time.monotonic() - began})

    def demonstrate(self, step: int) -> list[Rollout]:
        """This rank's demonstrated episodes of a step."""
        start = FIRST_INDEX + step * self.tasks_per_step
        tasks = self.data.training_tasks(start, self.tasks_per_step)
        env, team = self.data.environment, self.team
        runner = team.session.runner
        return collect(env, tasks, self.sampler, team.engines, team.policy_map, step, runner)
