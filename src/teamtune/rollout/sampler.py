"""What samplers share: prompting an agent's policy for one group and scoring a (joint) action."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from teamtune.envs import Environment, Transition
from teamtune.errors import ConfigError
from teamtune.experience.records import Candidate, Group, GroupKey, Rollout
from teamtune.inference import Completion, RolloutEngine, Sampling
from teamtune.seeds import derive_seed
from teamtune.tasks import Task


class Team:
    """Who answers for which agent: engines by policy, and the map from agent to policy."""

    def __init__(self, engines: Mapping[str, RolloutEngine], policy_map: Mapping[str, str]):
        self.engines, self.policy_map = engines, policy_map

    async def ask(
        self,
        env: Environment[Any],
        state: Any,
        key: GroupKey,
        n: int,
        seed: int,
        sampling_for: Callable[[RolloutEngine], Sampling] = lambda engine: engine.sampling,
    ) -> Group:
        """A group of `n` candidates for `key.agent` in `state`, not scored yet."""
        policy = self.policy_map[key.agent]
        engine = self.engines[policy]
        messages = env.observe(state, key.agent)
        prompt_ids = engine.chat.encode(messages)
        group_seed = derive_seed(seed, key.task, key.agent, key.turn, key.node)
        completions = await engine.generate(prompt_ids, n, sampling_for(engine), group_seed)
        prompt = "\n".join(message["content"] for message in messages)
        candidates = [_candidate(c) for c in completions]
        return Group(key, policy, prompt, tuple(prompt_ids), candidates)


def _candidate(completion: Completion) -> Candidate:
    error = None
    if completion.stop_reason == "too_long":
        error = "the prompt and max_tokens exceed the context"
    return Candidate(
        text=completion.text,
        token_ids=completion.token_ids,
        sampling_logprobs=completion.logprobs,
        stop_reason=completion.stop_reason,
        version=completion.version,
        error=error,
    )


async def score(
    env: Environment[Any], state: Any, joints: Sequence[Mapping[str, Candidate]]
) -> list[Transition[Any] | None]:
    """The transition of each joint action, None where a generation or the environment failed.

    Equal texts are played once, for a transition is a function of state and actions. This is the
    environment boundary: an exception becomes `error` on the candidates, never a reward; only a
    ConfigError, from an environment that can score nothing, gets through.
    """
    for joint in joints:
        if any(c.stop_reason == "too_long" for c in joint.values()):
            for candidate in joint.values():
                candidate.excused = True
    answered = [
        None
        if any(c.stop_reason in ("failed", "too_long") for c in joint.values())
        else tuple((agent, c.text) for agent, c in joint.items())
        for joint in joints
    ]
    actions = [a for a in dict.fromkeys(answered) if a is not None]
    outcomes = await asyncio.gather(
        *(env.transition(state, dict(a)) for a in actions), return_exceptions=True
    )
    found = dict(zip(actions, outcomes))
    steps: list[Transition[Any] | None] = []
    for joint, action in zip(joints, answered):
        outcome = None if action is None else found[action]
        if isinstance(outcome, Exception) and not isinstance(outcome, ConfigError):
            for candidate in joint.values():
                candidate.error = f"{type(outcome).__name__}: {outcome}"
            outcome = None
        elif isinstance(outcome, BaseException):
            raise outcome
        steps.append(outcome)
    return steps


class Sampler(ABC):
    """Turns a task into a rollout. Samplers hold settings only, no state."""

    max_turns: int
    """How often each agent acts at most."""

    def describe(self, env: Environment[Any]) -> str:
        """What a task costs, in words, where that is not plain; said before training starts."""
        return ""

    @abstractmethod
    async def sample(self, env: Environment[Any], task: Task, team: Team, seed: int) -> Rollout:
        """One episode of `task`; a function of its arguments, whatever else runs beside it."""
