"""A demonstrator for Relay that knows how answers look, and little or nothing of what to say."""

import random

from teamtune.envs.plan_path.board import MOVES, is_free
from teamtune.envs.relay.environment import Relay, RelayState, shortest_way
from teamtune.errors import ConfigError
from teamtune.ranges import NonNegativeInt, Share


class Babbler:
    """Says words at random and walks at random.

    Its actor looks at its feet: no list begins with a move that is seen to be impossible. Where
    words are moves, it can be made to do what it hears.
    """

    def __init__(self, obedience: Share = 0.0, sure_words: NonNegativeInt = 0):
        """
        Args:
            obedience: How often the actor plays the words that it hears, where they are moves.
            sure_words: How many first words of a message are a shortest way's, where the scout sees
                all of it and words are moves.
        """
        self.obedience = obedience
        self.sure_words = sure_words

    def answer(self, env: Relay, state: RelayState, agent: str, rng: random.Random) -> str:
        """An answer as long as can be, `U R R D`; only sure words depend on where the goal is."""
        if state.phase == "ask" and env.code_book:
            rows, columns = len(state.board.grid), len(state.board.grid[0])
            return f"{rng.randrange(rows)},{rng.randrange(columns)}"
        if state.phase != "move":
            words = env.channel.words or tuple(MOVES)
            said = rng.choices(words, k=env.channel.max_words)
            way = self._way(env, state)[: min(self.sure_words, len(said))]
            return " ".join([*way, *said[len(way) :]])
        heard = [word for words in state.messages for word in words]
        if env.code_book and heard and rng.random() < self.obedience:
            return " ".join(heard[: env.rules.max_moves])
        return " ".join(self._wander(env, state, rng))

    def _way(self, env: Relay, state: RelayState) -> str:
        if not self.sure_words:
            return ""
        if len(env.scouts) != 1 or env.asks or not set(env.channel.words or MOVES) >= set(MOVES):
            raise ConfigError(
                f"sure_words: got {self.sure_words}, allowed: 0, or more with one scout, asks "
                "false and words that are moves"
            )
        return shortest_way(state.board.grid, state.board.cell, state.board.goal)

    def _wander(self, env: Relay, state: RelayState, rng: random.Random) -> list[str]:
        row, column = state.board.cell
        possible = [
            m for m, d in MOVES.items() if is_free(state.board.grid, (row + d[0], column + d[1]))
        ]
        first = rng.choice(possible if env.sight else list(MOVES))
        return [first, *rng.choices(list(MOVES), k=env.rules.max_moves - 1)]
