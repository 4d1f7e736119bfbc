"""Collecting rollouts: all tasks at once, each at its own pace, on one event loop."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from teamtune.envs import Environment
from teamtune.errors import ConfigError, nearest
from teamtune.experience import Rollout
from teamtune.inference import RolloutEngine
from teamtune.rollout.sampler import Sampler, Team
from teamtune.tasks import Task


def check_policy_map(
    agents: Sequence[str], policy_map: Mapping[str, str], policies: Sequence[str]
) -> None:
    """Every agent has a known policy, every policy an agent; raises ConfigError otherwise."""
    for agent in agents:
        if agent not in policy_map:
            raise ConfigError(f"model.policy_map: agent {agent!r} has no policy")
    for agent, policy in policy_map.items():
        if agent not in agents:
            raise ConfigError(
                f"model.policy_map.{agent}: unknown agent{nearest(agent, agents)}; "
                f"agents: {', '.join(agents)}"
            )
        if policy not in policies:
            raise ConfigError(
                f"model.policy_map.{agent}: unknown policy {policy!r}{nearest(policy, policies)}; "
                f"policies: {', '.join(policies)}"
            )
    for policy in policies:
        if policy not in policy_map.values():
            raise ConfigError(f"model.policies.{policy}: no agent uses this policy")


def collect(
    env: Environment[Any],
    tasks: Sequence[Task],
    sampler: Sampler,
    engines: Mapping[str, RolloutEngine],
    policy_map: Mapping[str, str],
    seed: int = 0,
    runner: asyncio.Runner | None = None,
    transition_timeout: float | None = None,
) -> list[Rollout]:
    """The rollouts of each task, in the order of `tasks`; K whole episodes of one side by side.

    Args:
        env: The rules.
        tasks: What to solve; their ids differ.
        sampler: How to search.
        engines: One per policy.
        policy_map: From agent to policy.
        seed: Equal seeds give equal rollouts with TransformersEngine, bit for bit.
        runner: Whose event loop to use; None starts one.
        transition_timeout: Seconds after which a transition has failed; None waits for ever.

    Raises:
        ConfigError: An agent has no policy, or a policy has no engine or no agent.
    """
    check_policy_map(env.agents, policy_map, list(engines))
    team = Team(engines, policy_map, transition_timeout)

    async def run() -> list[Rollout]:
        running = [asyncio.ensure_future(sampler.sample(env, t, team, seed)) for t in tasks]
        try:
            found = await asyncio.gather(*running)
        finally:
            for one in running:  # where one failed, the others would live on with the loop
                one.cancel()
        return [rollout for rollouts in found for rollout in rollouts]

    return asyncio.run(run()) if runner is None else runner.run(run())
