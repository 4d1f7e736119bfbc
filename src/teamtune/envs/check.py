"""`check_env`: the contract that every environment keeps, checked on real tasks.

It searches the states that sampled and malformed actions lead to, and compares what every
transition gives with what the contract promises.
"""

import asyncio
import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from teamtune.envs.environment import Environment, Transition
from teamtune.tasks import Task

MALFORMED = (
    "",
    " ",
    "\x00",
    "```",
    "{}",
    "[]",
    "None",
    "é" * 50,
    "A" * 5000,
    "\ud800",
    "ignore all",
)
MAX_STATES = 60


class ContractError(AssertionError):
    """The environment broke its contract; the message names the task, the state and the rule."""


def check_env(env: Environment[Any], tasks: Iterable[Task], max_states: int = MAX_STATES) -> None:
    """Raises ContractError at the first broken promise; returns None where none was found.

    Promises: equal inputs give equal outputs; a transition leaves its parent state as it was;
    rewards are finite, in `reward_range`, and given to exactly the agents that acted; done means
    that nobody acts; success implies done; malformed text is survived; an agent's prompt is not the
    same in all states; no reachable failure has a return as large as that of a success; and an
    agent whose actions change what comes later is paid for them: where another agent's rewards
    differ between actions, its own do too. The last one does not concern steps that an environment
    calls not judged (`Outcome.judged`), which only a joint return can credit; one that has such
    steps says that it is `delayed`.

    Args:
        env: The environment.
        tasks: Instances to check it on; small ones are searched more thoroughly.
        max_states: How many states are searched per task, breadth first.
    """
    tasks = list(tasks)
    if not tasks:
        raise ValueError("check_env needs at least one task")
    part = {agent: _Part() for agent in env.agents}
    for task in tasks:
        for state in asyncio.run(_search(env, task, max_states, part)):
            for agent in env.acting(state):
                part[agent].acted += 1
                part[agent].prompts.add(repr(env.observe(state, agent)))
    for agent, own in part.items():
        if own.acted > 1 and len(own.prompts) == 1:
            raise ContractError(f"{agent}'s prompt is the same in {own.acted} different states")
        if own.matters and not own.paid and any(other.paid for other in part.values()):
            raise ContractError(
                f"{agent} is never credited: what it does changes what comes later, and its own "
                "rewards are the same for every action; pay it, or call its steps not judged "
                "(Outcome(judged=False)) and train it on joint returns"
            )


@dataclass
class _Part:
    """What was seen of one agent in all states."""

    acted: int = 0
    prompts: set[str] = field(default_factory=set)
    paid: bool = False
    """Two actions in one state earned it different rewards."""
    matters: bool = False
    """Two judged actions in one state led to different states."""

    def add(self, agent: str, steps: Sequence[Transition[Any]]) -> None:
        """The transitions of one state in which `agent` acted."""
        judged = [s for s in steps if s.outcome.judged and agent not in s.malformed]
        self.paid |= any(s.rewards[agent] != judged[0].rewards[agent] for s in judged)
        self.matters |= any(s.state != judged[0].state for s in judged)


def _require(holds: bool, rule: str, task: Task, state: Any) -> None:
    if not holds:
        raise ContractError(f"task {task.id}: {rule}; state: {state!r}")


async def _search(
    env: Environment[Any], task: Task, max_states: int, part: Mapping[str, _Part]
) -> list[Any]:
    """The states reached, each with all its transitions checked; what agents did goes to `part`."""
    start = env.reset(task)
    _require(start == env.reset(task), "reset is not a function of the task", task, start)
    _require(bool(env.acting(start)), "nobody acts in the initial state", task, start)
    states, failed, solved = [start], env.potential(start), math.inf
    for state in states:
        acting = env.acting(state)
        _require(set(acting) <= set(env.agents), "an unknown agent acts", task, state)
        samples = {agent: env.sample_actions(state, agent) for agent in acting}
        for agent, answers in samples.items():
            _require(bool(answers), f"sample_actions({agent}) is empty", task, state)
        width = max((len(answers) for answers in samples.values()), default=0)
        joint = [{a: s[i % len(s)] for a, s in samples.items()} for i in range(width)]
        joint += [dict.fromkeys(acting, text) for text in MALFORMED]
        steps = [await _checked(env, task, state, actions) for actions in joint if acting]
        for agent in acting:
            part[agent].add(agent, steps)
        for step in steps:
            if step.success:
                solved = min(solved, env.potential(step.state) + 1)
            else:
                failed = max(failed, env.potential(step.state))
            if len(states) < max_states and step.state not in states:
                states.append(step.state)
    _require(failed < solved, "an episode that fails outscores one that solves", task, start)
    return states


async def _checked(
    env: Environment[Any], task: Task, state: Any, actions: Mapping[str, str]
) -> Transition[Any]:
    before = copy.deepcopy(state)
    try:
        step = await env.transition(state, actions)
        again = await env.transition(state, actions)
    except Exception as error:
        raise ContractError(f"task {task.id}: does not survive {actions}: {error!r}") from error
    _require(state == before, f"transition changed its parent state under {actions}", task, before)
    _require(set(step.rewards) == set(actions), "rewards are not the acting agents'", task, state)
    low, high = env.reward_range
    for agent, reward in step.rewards.items():
        for name, value in vars(reward).items():
            inside = math.isfinite(value) and low <= value <= high
            _require(inside, f"{agent}'s {name} reward {value} leaves [{low}, {high}]", task, state)
    _require(
        step.outcome.judged or env.delayed,
        "a step that is not judged, of an environment that is not `delayed`",
        task,
        state,
    )
    _require(_same(step, again), f"two equal transitions differ under {actions}", task, state)
    _require(step.done or not step.success, "a success that is not done", task, state)
    _require(not (step.done and env.acting(step.state)), "done, yet somebody acts", task, state)
    for agent in env.acting(step.state):
        seen = env.observe(step.state, agent)
        _require(seen == env.observe(again.state, agent), "observe is random", task, state)
    return step


def _same(first: Transition[Any], second: Transition[Any]) -> bool:
    return (first.state, dict(first.rewards), first.done, first.success) == (
        second.state,
        dict(second.rewards),
        second.done,
        second.success,
    )
