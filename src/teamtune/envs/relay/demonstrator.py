"""A demonstrator for Relay that knows how answers look, not what to say or where to go."""

import random

from teamtune.envs.plan_path.board import MOVES, is_free
from teamtune.envs.relay.environment import Relay, RelayState
from teamtune.ranges import Share


class Babbler:
    """Says words at random and walks at random.

    Its actor looks at its feet: no list begins with a move that is seen to be impossible. Where
    words are moves, it can be made to do what it hears.
    """

    def __init__(self, obedience: Share = 0.0):
        """
        Args:
            obedience: How often the actor plays the words that it hears, where they are moves.
        """
        self.obedience = obedience

    def answer(self, env: Relay, state: RelayState, agent: str, rng: random.Random) -> str:
        """An answer as long as can be, `U R R D`; no part of it depends on where the goal is."""
        if state.phase == "ask" and env.code_book:
            rows, columns = len(state.board.grid), len(state.board.grid[0])
            return f"{rng.randrange(rows)},{rng.randrange(columns)}"
        if state.phase != "move":
            words = env.channel.words or tuple(MOVES)
            return " ".join(rng.choices(words, k=env.channel.max_words))
        heard = [word for words in state.messages for word in words]
        if env.code_book and heard and rng.random() < self.obedience:
            return " ".join(heard[: env.rules.max_moves])
        return " ".join(self._wander(env, state, rng))

    def _wander(self, env: Relay, state: RelayState, rng: random.Random) -> list[str]:
        row, column = state.board.cell
        possible = [
            m for m, d in MOVES.items() if is_free(state.board.grid, (row + d[0], column + d[1]))
        ]
        first = rng.choice(possible if env.sight else list(MOVES))
        return [first, *rng.choices(list(MOVES), k=env.rules.max_moves - 1)]
