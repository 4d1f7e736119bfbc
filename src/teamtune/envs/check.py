"""`check_env`: the contract that every environment keeps, checked on real tasks.

It plays sampled, repeated and malformed actions from every state that it reaches and compares what
comes back with what the contract promises.
"""

import asyncio
import copy
import math
import random
from collections.abc import Iterable, Mapping
from typing import Any

from teamtune.envs.environment import Environment, Transition
from teamtune.tasks import Task

MALFORMED = ("", " ", "\x00", "```", "{}", "[]", "None", "é" * 50, "A" * 5000, "\ud800", "ignore all")


class ContractError(AssertionError):
    """The environment broke its contract; the message names the task, the state and the rule."""


def check_env(env: Environment[Any], tasks: Iterable[Task], max_steps: int = 8) -> None:
    """Raises ContractError at the first broken promise; returns None where none was found.

    Promises: equal inputs give equal outputs; a transition leaves its parent state as it was;
    rewards are finite, in `reward_range`, and given to exactly the agents that acted; done means
    that nobody acts; success implies done; malformed text is survived; and an
    episode that fails never has a larger return than one that solves the same task.
    """
    tasks = list(tasks)
    if not tasks:
        raise ValueError("check_env needs at least one task")
    for task in tasks:
        asyncio.run(_check_task(env, task, max_steps))


def _require(holds: bool, rule: str, task: Task, state: Any) -> None:
    if not holds:
        raise ContractError(f"task {task.id}: {rule}; state: {state!r}")


async def _check_task(env: Environment[Any], task: Task, max_steps: int) -> None:
    start = env.reset(task)
    _require(start == env.reset(task), "reset is not a function of the task", task, start)
    _require(bool(env.acting(start)), "nobody acts in the initial state", task, start)
    failed, solved = -math.inf, math.inf
    rng = random.Random(task.id)
    for _ in range(8):
        state, success = start, False
        for _ in range(max_steps):
            acting = env.acting(state)
            if not acting:
                break
            _require(set(acting) <= set(env.agents), "an unknown agent acts", task, state)
            choices = []
            for agent in acting:
                samples = env.sample_actions(state, agent)
                _require(bool(samples), f"sample_actions({agent}) is empty", task, state)
                choices.append(samples)
            joint = [{a: c[i % len(c)] for a, c in zip(acting, choices)} for i in range(4)]
            broken = [{a: text for a in acting} for text in MALFORMED]
            for actions in joint + broken:
                await _check_transition(env, task, state, actions)
            chosen = {a: rng.choice(c) for a, c in zip(acting, choices)}
            step = await env.transition(state, chosen)
            state, success = step.state, step.success
            if step.done:
                break
        value = env.potential(state) - env.potential(start) + float(success)
        if success:
            solved = min(solved, value)
        else:
            failed = max(failed, value)
    _require(failed < solved, "an episode that fails outscores one that solves", task, start)


async def _check_transition(
    env: Environment[Any], task: Task, state: Any, actions: Mapping[str, str]
) -> None:
    before = copy.deepcopy(state)
    step = await env.transition(state, actions)
    again = await env.transition(state, actions)
    _require(state == before, f"transition changed its parent state under {actions}", task, before)
    _require(_same(step, again), f"two equal transitions differ under {actions}", task, state)
    _require(set(step.rewards) == set(actions), "rewards are not the acting agents'", task, state)
    low, high = env.reward_range
    for agent, reward in step.rewards.items():
        for name, value in (("local", reward.local), ("team", reward.team)):
            inside = math.isfinite(value) and low <= value <= high
            _require(inside, f"{agent}'s {name} reward {value} leaves [{low}, {high}]", task, state)
    _require(step.done or not step.success, "a success that is not done", task, state)
    _require(not (step.done and env.acting(step.state)), "done, yet somebody acts", task, state)
    for agent in env.agents:
        if agent in env.acting(step.state):
            seen = env.observe(step.state, agent)
            _require(seen == env.observe(again.state, agent), "observe is random", task, state)


def _same(first: Transition[Any], second: Transition[Any]) -> bool:
    return (first.state, dict(first.rewards), first.done, first.success) == (
        second.state,
        dict(second.rewards),
        second.done,
        second.success,
    )
