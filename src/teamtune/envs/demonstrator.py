"""Demonstrators of propose-then-play: both roles list what a solver does, made worse on purpose."""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from teamtune.envs.proposal import TOOL, program_for
from teamtune.ranges import NonNegativeInt, PositiveInt, Share


class NoisyLists(ABC):
    """Lists of which each entry after the first few is random with some probability."""

    def __init__(
        self,
        noise: Share = 1.0,
        sure_moves: NonNegativeInt = 1,
        length: PositiveInt | None = None,
    ):
        """
        Args:
            noise: Chance that an entry of a list is a random possible one instead of a best one.
            sure_moves: How many first entries of a list are free of noise.
            length: Entries of a list; null takes the environment's maximum.
        """
        self.noise = noise
        self.sure_moves = sure_moves
        self.length = length

    def answer(self, env: Any, state: Any, agent: str, rng: random.Random) -> str:
        """A list from where the board stands up to its solution; of a tool its program."""

        def sure(index: int) -> bool:
            return index < self.sure_moves or rng.random() >= self.noise

        listed = " ".join(self.plan(env, state, rng, sure))
        return program_for(listed) if agent.partition("_")[0] == TOOL else listed

    @abstractmethod
    def plan(
        self, env: Any, state: Any, rng: random.Random, sure: Callable[[int], bool]
    ) -> Sequence[str]:
        """The list's entries; `sure`, asked for each in order, says whether it is a best one."""
