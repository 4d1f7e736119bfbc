"""A warm start clones a demonstrator for a while; it stands in for pre-training of tiny models."""

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Any, Protocol

import lightning as L
import torch

from teamtune.algorithms.cloning import Cloning
from teamtune.envs import Environment
from teamtune.errors import ConfigError, at_least
from teamtune.experience import Candidate, Group, GroupKey
from teamtune.inference import RolloutEngine
from teamtune.policies.policy import OptimizerCallable, check_optimizer
from teamtune.seeds import derive_seed
from teamtune.tasks import Task
from teamtune.training import MultiOptimizerLoop, TeamModule
from teamtune.training.data import TaskDataModule

FIRST_INDEX = 1_000_000_000
"""Warm-start tasks are training tasks from here on; of an endless source no rollout has them."""


class Demonstrator(Protocol):
    """Something that can answer for an agent, well or badly."""

    def answer(self, env: Any, state: Any, agent: str, rng: random.Random) -> str:
        """An answer of `agent` in `state`."""


class WarmStart(L.Callback):
    """Before the first rollout, every policy clones a demonstrator on training tasks."""

    def __init__(
        self,
        demonstrator: Demonstrator,
        steps: int,
        tasks_per_step: int = 64,
        answers_per_prompt: int = 1,
        max_turns: int = 4,
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

        Raises:
            ConfigError: A value out of its range.
        """
        at_least(1, steps=steps, tasks_per_step=tasks_per_step)
        at_least(1, answers_per_prompt=answers_per_prompt, max_turns=max_turns)
        check_optimizer(optimizer)
        self.demonstrator = demonstrator
        self.steps = steps
        self.tasks_per_step = tasks_per_step
        self.answers_per_prompt = answers_per_prompt
        self.max_turns = max_turns
        self.optimizer = optimizer

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        assert isinstance(pl_module, TeamModule)
        self.check(pl_module)

    def check(self, module: TeamModule) -> None:
        """Raises ConfigError where the team cannot be trained after a warm start."""
        adapted = any(p.lora is not None for p in module.named_policies().values())
        if adapted and module.algorithm.needs_reference:
            raise ConfigError(
                "model.algorithm.init_args.kl_coef: allowed with lora and a warm start: 0 (the "
                "reference is the model without its adapter, and the warm start is in the adapter)"
            )

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        module = pl_module
        assert isinstance(module, TeamModule)
        if module.warm_started:
            return
        module.phase = "warm start"
        began = time.monotonic()
        data: TaskDataModule = trainer.datamodule  # type: ignore[attr-defined]
        policies = module.named_policies()
        optimizers = {n: self.optimizer(p.trainable_parameters()) for n, p in policies.items()}
        schedules = [
            torch.optim.lr_scheduler.LinearLR(o, 1.0, 0.0, self.steps) for o in optimizers.values()
        ]
        cloning = Cloning()
        loop = MultiOptimizerLoop(cloning)
        metrics: dict[str, float] = {}
        for step in range(self.steps):
            start = FIRST_INDEX + step * self.tasks_per_step
            tasks = data.training_tasks(start, self.tasks_per_step)
            groups = self.demonstrate(
                data.environment, tasks, module.engines, module.policy_map, step
            )
            cloning.assign_credit(groups)
            experience = {n: [g for g in groups if g.policy == n] for n in policies}
            metrics = loop.run(policies, optimizers, experience, 1.0, 0, module.device)
            for schedule in schedules:
                schedule.step()
            if step == 0 or (step + 1) % max(1, self.steps // 5) == 0:
                losses = {n: metrics.get(f"{n}/loss", 0.0) for n in policies}
                shown = ", ".join(f"{n} {loss:.3f}" for n, loss in losses.items())
                module.print(f"warm start {step + 1}/{self.steps}: loss of {shown}")
        for policy in policies.values():
            policy.set_reference()
        module.warm_started = True
        losses = {f"{n}/warm_start_loss": metrics.get(f"{n}/loss", 0.0) for n in policies}
        module.report(losses | {"time/warm_start": time.monotonic() - began})

    def demonstrate(
        self,
        env: Environment[Any],
        tasks: Sequence[Task],
        engines: dict[str, RolloutEngine],
        policy_map: dict[str, str],
        seed: int,
    ) -> list[Group]:
        """Episodes of the demonstrator as groups of demonstrations."""

        async def play() -> list[Group]:
            groups: list[Group] = []
            for task in tasks:
                groups += await self._episode(env, task, engines, policy_map, seed)
            return groups

        return asyncio.run(play())

    async def _episode(
        self,
        env: Environment[Any],
        task: Task,
        engines: dict[str, RolloutEngine],
        policy_map: dict[str, str],
        seed: int,
    ) -> list[Group]:
        rng = random.Random(derive_seed("demonstration", seed, task.id))
        state, groups = env.reset(task), []
        turns = dict.fromkeys(env.agents, 0)
        while (acting := env.acting(state)) and all(turns[a] < self.max_turns for a in acting):
            actions = {}
            for agent in acting:
                policy = policy_map[agent]
                chat = engines[policy].chat
                texts = [
                    self.demonstrator.answer(env, state, agent, rng)
                    for _ in range(self.answers_per_prompt)
                ]
                messages = env.observe(state, agent)
                key = GroupKey(task.id, agent, turns[agent])
                prompt_ids = tuple(chat.encode(messages))
                answers = [demonstration(chat.encode_answer(text), text) for text in texts]
                groups.append(Group(key, policy, messages[-1]["content"], prompt_ids, answers))
                actions[agent] = texts[0]
                turns[agent] += 1
            state = (await env.transition(state, actions)).state
        return groups


def demonstration(token_ids: Sequence[int], text: str) -> Candidate:
    """A candidate that nobody sampled: log-prob 0, reward 1."""
    ids = tuple(token_ids)
    return Candidate(text, ids, (0.0,) * len(ids), "stop", 0, reward=1.0)
