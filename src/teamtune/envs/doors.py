"""Doors: the smallest task that needs a team. Who sees the coin can only talk, who opens is blind.

The words mean nothing at first: a language has to be found that both speak.
"""

import random
from collections.abc import Mapping
from typing import Any, NamedTuple

from teamtune.envs.answers import answer_of
from teamtune.envs.environment import Environment, Message, Outcome, Reward, Transition
from teamtune.seeds import derive_seed
from teamtune.tasks import Task

ANIMALS = ("bat", "cat", "dog", "fox", "hen", "owl")
DOORS = ("1", "2", "3", "4")
WORDS = tuple(a + b for a in "bklm" for b in "aeio")


class Yard(NamedTuple):
    """What is to be seen, the word that was heard of it, and the door that was opened."""

    animals: tuple[str, str]
    coin: str
    heard: str = ""
    opened: str = ""


class Doors(Environment[Yard]):
    """A scout sees behind which of four doors the coin is, and says a word; an opener hears it.

    It also sees two animals, which do not matter, so that there are yards nobody has trained on.
    """

    agents = ("scout", "opener")
    reward_range = (0.0, 1.0)
    delayed = True

    def task(self, seed: int) -> Task:
        rng = random.Random(derive_seed("doors", seed))
        animals = (rng.choice(ANIMALS), rng.choice(ANIMALS))
        return Task(f"doors-{seed}", {"animals": animals, "coin": rng.choice(DOORS)})

    def reset(self, task: Task) -> Yard:
        return Yard(task.data["animals"], task.data["coin"])

    def acting(self, state: Yard) -> tuple[str, ...]:
        return () if state.opened else ("opener",) if state.heard else ("scout",)

    def observe(self, state: Yard, agent: str) -> list[Message]:
        seen = f"{' '.join(state.animals)} coin:{state.coin}"
        return [{"role": "user", "content": seen if agent == "scout" else state.heard}]

    async def transition(self, state: Yard, actions: Mapping[str, str]) -> Transition[Yard]:
        ((agent, text),) = actions.items()
        said = " ".join((answer_of(text) or "").split()[:1])  # the first word is heard
        malformed = () if said in self.sample_actions(state, agent) else (agent,)
        said = "?" if malformed else said
        if agent == "scout":  # what a word is worth shows only when a door has been opened
            after, later = state._replace(heard=said), Outcome(judged=False)
            return Transition(after, {agent: Reward()}, malformed=malformed, outcome=later)
        after = state._replace(opened=said)
        found = self.potential(after)
        return Transition(after, {agent: Reward(team=found)}, True, found == 1, malformed)

    def potential(self, state: Yard) -> float:
        return float(state.opened == state.coin)

    def sample_actions(self, state: Yard, agent: str) -> list[str]:
        return list(WORDS if agent == "scout" else DOORS)


class Anything:
    """Demonstrates the form of an answer, and nothing else."""

    def answer(self, env: Any, state: Any, agent: str, rng: random.Random) -> str:
        return rng.choice(env.sample_actions(state, agent))
