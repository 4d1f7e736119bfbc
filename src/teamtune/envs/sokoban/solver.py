"""Demonstrators for Sokoban: a solver with the fewest pushes, made worse on purpose."""

import random
from collections import deque

from teamtune.envs.proposal import TOOL, program_for
from teamtune.envs.sokoban.environment import Sokoban, SokobanState
from teamtune.envs.sokoban.room import Room, pushes_left, walk
from teamtune.ranges import NonNegativeInt, PositiveInt, Share

_MOVES = "UDLR"


class NoisySolver:
    """Solves a room, but each move after the first few is random with some probability."""

    def __init__(
        self,
        noise: Share = 1.0,
        sure_moves: NonNegativeInt = 1,
        length: PositiveInt | None = None,
    ):
        """
        Args:
            noise: Chance that a move is a random possible one instead of a best one.
            sure_moves: How many first moves of a list are free of noise.
            length: Moves of a list; null takes the environment's maximum.
        """
        self.noise = noise
        self.sure_moves = sure_moves
        self.length = length

    def answer(self, env: Sokoban, state: SokobanState, agent: str, rng: random.Random) -> str:
        """A list of moves, `U R R`, up to the solution; of a tool its program."""
        player, boxes, moves = state.player, state.boxes, list[str]()
        for index in range(self.length or env.max_moves):
            if moves and state.room.solved(boxes):
                break
            best = index < self.sure_moves or rng.random() >= self.noise
            found = way_to_next_push(state.room, player, boxes) if best else ""
            move = found[0] if found else rng.choice(_possible(state.room, player, boxes))
            player, boxes = walk(state.room, player, boxes, move)
            moves.append(move)
        listed = " ".join(moves)
        return program_for(listed) if agent == TOOL else listed


def way_to_next_push(room: Room, player: int, boxes: int) -> str:
    """The shortest way to a push that brings the end nearer, that push included.

    Empty where there is none: the room is solved, or cannot be.
    """
    left = pushes_left(room, player, boxes)
    ways, seen = deque([(player, "")]), {player}
    while ways and left:
        cell, way = ways.popleft()
        for move in _MOVES:
            after = walk(room, cell, boxes, move)
            if after[1] != boxes:
                if pushes_left(room, *after) == left - 1:
                    return way + move
            elif after[0] not in seen:
                seen.add(after[0])
                ways.append((after[0], way + move))
    return ""


def _possible(room: Room, player: int, boxes: int) -> list[str]:
    """The moves that change something; all where the player is shut in."""
    found = [move for move in _MOVES if walk(room, player, boxes, move)[0] != player]
    return found or list(_MOVES)
