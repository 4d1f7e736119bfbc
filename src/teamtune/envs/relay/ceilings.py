"""What can be had without a word, computed, so that what talking adds is a number.

Both are expectations over tasks as `Relay.task` draws them, averaged over those given.
"""

import itertools
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from teamtune.envs.plan_path.board import MOVES, Cell, Grid, distances, is_free
from teamtune.envs.plan_path.environment import PlanPathState
from teamtune.envs.relay.environment import Relay
from teamtune.tasks import Task

LARGEST = 20
"""Cells that an actor does not see, of the largest board on which a known goal is searched."""


def single_agent_ceiling(env: Relay, tasks: Sequence[Task], rounds: int) -> float:
    """The largest share of `tasks` that an actor to whom nobody talks can be expected to solve.

    It is a bound for any actor, one with a perfect memory that knows `env`'s settings included.

    Goal hidden: the actor is shown more than it sees, namely the whole board except the goal. Given
    board and start, all cells within `max_distance` are equally likely goals, and until one of
    them is entered nothing new is learned. So no actor does better than to fix a walk of
    rounds x max_moves steps that enters most of them, which is found by exhaustive search.

    Goal known: what is hidden are the cells out of sight. All boards that agree with what is seen
    are searched, each with the probability that it is drawn, for the list of moves that is best on
    average in the first round. After it the actor is shown the whole board, and solves it if the
    goal is within the steps that are left. For one round this is exact, for more a bound.

    Args:
        env: The settings.
        tasks: Drawn by `env.task`.
        rounds: Lists that the actor gives.

    Raises:
        ValueError: No tasks, or a known goal on too large a board.
    """
    if not tasks:
        raise ValueError("a ceiling needs at least one task")
    best = _best_walk if env.goal == "hidden" else _best_list
    return sum(best(env, env.reset(task).board, rounds) for task in tasks) / len(tasks)


def random_success(env: Relay, tasks: Sequence[Task], rounds: int) -> float:
    """The expected success of an untrained team: all its lists are full, all moves equally likely.

    Whatever is said then makes no difference. Raises ValueError where there are no tasks.
    """
    if not tasks:
        raise ValueError("a mean needs at least one task")
    boards = [env.reset(task).board for task in tasks]
    return sum(_drift(board, env.rules.max_moves, rounds) for board in boards) / len(boards)


def _drift(board: PlanPathState, max_moves: int, rounds: int) -> float:
    """The probability that random lists lead to the goal."""
    at = {board.cell: 1.0}
    for _ in range(rounds):
        walking, stopped = at, {board.goal: at.pop(board.goal, 0.0)}
        for _ in range(max_moves):
            ahead: dict[Cell, float] = {}
            for cell, p in walking.items():
                for delta in MOVES.values():
                    to = (cell[0] + delta[0], cell[1] + delta[1])
                    if is_free(board.grid, to) and to != board.goal:
                        ahead[to] = ahead.get(to, 0.0) + p / len(MOVES)
                    else:
                        end = to if to == board.goal else cell
                        stopped[end] = stopped.get(end, 0.0) + p / len(MOVES)
            walking = ahead
        at = {c: walking.get(c, 0.0) + stopped.get(c, 0.0) for c in walking.keys() | stopped.keys()}
    return at.get(board.goal, 0.0)


def _best_walk(env: Relay, board: PlanPathState, rounds: int) -> float:
    """The share of the possible goals that the best walk from the start enters."""
    reach = distances(board.grid, board.start)
    furthest = env.max_distance or len(reach)
    goals = frozenset(cell for cell, way in reach.items() if 0 < way <= furthest)
    return most_entered(board.grid, board.start, goals, rounds * env.rules.max_moves) / len(goals)


@lru_cache(maxsize=4096)
def most_entered(grid: Grid, start: Cell, goals: frozenset[Cell], steps: int) -> int:
    """How many of `goals` a walk of `steps` from `start` enters at most; branch and bound."""
    limit, best = min(steps, len(goals)), 0
    searched: dict[tuple[Cell, frozenset[Cell]], int] = {}
    pending = [(start, frozenset[Cell](), steps)]
    while pending and best < limit:
        cell, entered, left = pending.pop()
        best = max(best, len(entered))
        if len(entered) + left <= best or searched.get((cell, entered), -1) >= left:
            continue
        searched[cell, entered] = left
        ahead = [(cell[0] + d[0], cell[1] + d[1]) for d in MOVES.values()]
        free = [to for to in ahead if is_free(grid, to)]
        free.sort(key=lambda to: to in goals and to not in entered)  # new ones are popped first
        pending += [(to, entered | ({to} & goals), left - 1) for to in free]
    return best


def _best_list(env: Relay, board: PlanPathState, rounds: int) -> float:
    """The probability that the best list, and then the rest with the board shown, solves it."""
    rows, columns = len(board.grid), len(board.grid[0])
    place, sight = board.cell, env.sight
    cells = list(itertools.product(range(rows), range(columns)))
    hidden = tuple(
        cell
        for cell in cells
        if max(abs(cell[0] - place[0]), abs(cell[1] - place[1])) > sight and cell != board.goal
    )
    if len(hidden) > LARGEST:
        raise ValueError(f"{len(hidden)} cells are out of sight, at most {LARGEST} can be searched")
    seen = tuple(
        "".join("?" if (r, c) in hidden else mark for c, mark in enumerate(row))
        for r, row in enumerate(board.grid)
    )
    p, moves = env.rules.obstacle_probability, env.rules.max_moves
    rest = (rounds - 1) * moves
    return _searched(seen, place, board.goal, p, moves, rest, env.max_distance)


@lru_cache(maxsize=4096)
def _searched(
    seen: Grid,
    place: Cell,
    goal: Cell,
    obstacle_probability: float,
    max_moves: int,
    rest: int,
    max_distance: int | None,
) -> float:
    """Of the boards that look like `seen`, the share on which the best list leads near the goal."""
    boards, weight = _boards(seen, obstacle_probability)
    bit = {
        cell: i for i, cell in enumerate(itertools.product(range(len(seen)), range(len(seen[0]))))
    }
    ways = _ways(boards, bit, goal, max(rest, max_distance or len(bit)))
    weight = weight * _has(ways[min(max_distance or len(bit), len(ways) - 1)], bit[place])
    near = ways[min(rest, len(ways) - 1)]
    total, best = float(weight.sum()), 0.0
    pending = [(place, weight, 0.0, max_moves)]
    while pending:
        cell, walking, banked, left = pending.pop()
        ends = float((walking * _has(near, bit[cell])).sum())
        best = max(best, banked + ends)
        if left == 0 or cell == goal:
            continue
        for delta in MOVES.values():
            ahead = (cell[0] + delta[0], cell[1] + delta[1])
            if ahead not in bit:
                continue  # the list ends here, as it may anyway
            free = walking * _has(boards, bit[ahead])
            stopped = ends - float((free * _has(near, bit[cell])).sum())
            if free.any():
                pending.append((ahead, free, banked + stopped, left - 1))
    return best / total


def _boards(seen: Grid, p: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """All boards that look like `seen`: their free cells as bits, and how likely each is drawn.

    Start and goal are two of a board's free cells, so that a board with many of them is drawn less
    often with this pair.
    """
    marks = "".join(seen)
    hidden = [i for i, mark in enumerate(marks) if mark == "?"]
    known = sum(1 << i for i, mark in enumerate(marks) if mark == ".")
    boards = np.full(1, known, dtype=np.int64)
    weight = np.ones(1)
    for i in hidden:
        boards = np.concatenate([boards, boards | (1 << i)])
        weight = np.concatenate([weight * p, weight * (1 - p)])
    free = sum((boards >> i) & 1 for i in range(len(marks)))
    return boards, weight / (free * (free - 1))


def _ways(
    boards: NDArray[np.int64], bit: dict[Cell, int], goal: Cell, steps: int
) -> list[NDArray[np.int64]]:
    """The cells from which the goal is at most 0, 1, 2, ... steps away, up to the last change."""
    width = 1 + max(column for _, column in bit)
    left = sum(1 << i for (_, column), i in bit.items() if column == 0)
    right = sum(1 << i for (_, column), i in bit.items() if column == width - 1)
    near = [np.full_like(boards, 1 << bit[goal])]
    for _ in range(steps):
        now = near[-1]
        wider = now | (now << width) | (now >> width) | ((now & ~right) << 1) | ((now & ~left) >> 1)
        near.append(wider & boards)
        if np.array_equal(near[-1], now):
            break
    return near


def _has(cells: NDArray[np.int64], index: int) -> NDArray[np.int64]:
    return (cells >> index) & 1
