"""What the package does not offer, because it is wrong or worse: for comparisons alone."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from teamtune.algorithms import ATGRPO
from teamtune.algorithms.credit import group_advantages
from teamtune.envs import PlanPath, Reward, Transition
from teamtune.envs.plan_path.environment import PlanPathState
from teamtune.envs.proposal import PLANNER
from teamtune.envs.relay import Relay, RelayState
from teamtune.experience import Candidate, Rollout, groups_of

Pool = Literal["tasks", "turns", "agents"]


class PooledATGRPO(ATGRPO):
    """AT-GRPO that compares answers to different prompts, which differ in more than the answer."""

    def __init__(self, pool: Pool, **options: Any):
        """
        Args:
            pool: What a comparison goes over, within a step: all `tasks` (of an agent's turn), all
                `turns` (of an agent in a task), or all `agents` (of a turn in a task).
        """
        super().__init__(**options)
        self.pool: Pool = pool

    def assign_credit(self, rollouts: Sequence[Rollout]) -> None:
        pools: dict[tuple[Any, ...], list[Candidate]] = defaultdict(list)
        for group in groups_of(rollouts):
            key = {"tasks": group.key.task, "turns": group.key.turn, "agents": group.key.agent}
            rest = tuple(value for name, value in key.items() if name != self.pool)
            pools[rest] += group.candidates
        for pooled in pools.values():
            rewards = [c.reward for c in pooled]
            advantages = group_advantages(rewards, self.scale, self.baseline).tolist()
            for candidate, advantage in zip(pooled, advantages):
                candidate.advantage = advantage


class OutcomePlanPath(PlanPath):
    """Plan-Path that pays for the goal alone: 1 for a list that reaches it, else 0.

    The first role gets that for a list that would have. Returns are as in Plan-Path.
    """

    async def transition(
        self, state: PlanPathState, actions: Mapping[str, str]
    ) -> Transition[PlanPathState]:
        step = await super().transition(state, actions)
        if PLANNER in actions:
            return replace(step, rewards={PLANNER: Reward(team=float(step.success))})
        rewards = {
            agent: Reward() if plan is None else Reward(shaping=self._would_solve(state, plan))
            for agent, plan in zip(actions, step.state.proposals)
        }
        return replace(step, rewards=rewards)

    def _would_solve(self, state: PlanPathState, plan: str) -> float:
        return float(self.solved(self.play(state, plan)))


class ShuffledRelay(Relay):
    """Relay whose actor hears, word for word, what was said about the board before; first nothing.

    What still succeeds owes nothing to what the words mean.
    """

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.last: tuple[tuple[str, ...], ...] = ((),) * len(self.scouts)

    async def transition(
        self, state: RelayState, actions: Mapping[str, str]
    ) -> Transition[RelayState]:
        step = await super().transition(state, actions)
        if state.phase != "tell":
            return step
        heard, self.last = self.last, step.state.messages
        return replace(step, state=replace(step.state, messages=heard))
