"""Whether the team's models can say and read what an environment wants of them.

A word that a tokenizer does not know reads like any other such word, and an answer that is cut off
is never a right one: learning would fail without a word.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from teamtune.envs import Environment
from teamtune.errors import ConfigError
from teamtune.inference import RolloutEngine, Sampling
from teamtune.tasks import Task


def check_vocabulary(
    env: Environment[Any],
    tasks: Sequence[Task],
    engines: Mapping[str, RolloutEngine],
    policy_map: Mapping[str, str],
    sampling: Sampling,
    runner: asyncio.Runner,
) -> None:
    """Walks along the beginnings of some episodes.

    Args:
        env: Its `sample_actions` are what agents are to say.
        tasks: Where to begin.
        engines: By policy.
        policy_map: From agent to policy.
        sampling: Its `max_tokens` is the room for an answer.
        runner: For the transitions.

    Raises:
        ConfigError: Nobody acts, a prompt has words that its reader does not know, or no answer
            that an agent could give is made of words that it knows, or short enough.
    """
    for task in tasks:
        state = env.reset(task)
        if not env.acting(state):
            raise ConfigError(f"data.environment: nobody acts in task {task.id}")
        for _ in env.agents:
            acting = env.acting(state)
            for agent in acting:
                engine = engines[policy_map[agent]]
                _check_prompt(env.observe(state, agent), agent, policy_map[agent], engine)
                _check_answers(env.sample_actions(state, agent), agent, engine, sampling)
            said = {agent: env.sample_actions(state, agent)[:1] for agent in acting}
            if not said or not all(said.values()):
                break
            actions = {agent: texts[0] for agent, texts in said.items()}
            state = runner.run(_step(env, state, actions))


async def _step(env: Environment[Any], state: Any, actions: Mapping[str, str]) -> Any:
    return (await env.transition(state, actions)).state


def _check_prompt(
    messages: Sequence[Mapping[str, str]], agent: str, policy: str, engine: RolloutEngine
) -> None:
    unknown = [w for message in messages for w in engine.chat.unknown_words(message["content"])]
    if unknown:
        raise ConfigError(
            f"model.policies.{policy}: its tokenizer does not know {_quoted(unknown)} of the "
            f"prompt for {agent!r}, allowed: a vocabulary with all words of its prompts"
        )


def _check_answers(
    answers: Sequence[str], agent: str, engine: RolloutEngine, sampling: Sampling
) -> None:
    """An environment that gives no samples is taken at its word."""
    if not answers:
        return
    sayable = [text for text in answers if not engine.chat.unknown_words(text)]
    if not sayable:
        unknown = engine.chat.unknown_words(answers[0])
        raise ConfigError(
            f"model.policies: the tokenizer of {agent!r} does not know {_quoted(unknown)} of its "
            "answers, allowed: a vocabulary in which it can say something"
        )
    shortest = min(len(engine.chat.encode_answer(text)) for text in sayable)
    if shortest > sampling.max_tokens:
        raise ConfigError(
            f"rollout.sampling.max_tokens: got {sampling.max_tokens}, allowed: {shortest} or more, "
            f"the shortest answer of {agent!r} with its end token"
        )


def _quoted(words: Sequence[str]) -> str:
    return ", ".join(repr(word) for word in list(dict.fromkeys(words))[:3])
