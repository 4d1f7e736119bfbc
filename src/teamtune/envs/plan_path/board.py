"""Grid boards: cells, moves, shortest paths and random instances. No prompts, no rewards."""

import random
from collections import deque
from functools import lru_cache

from teamtune.errors import ConfigError

Cell = tuple[int, int]
Grid = tuple[str, ...]

MOVES: dict[str, Cell] = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}
_ATTEMPTS = 10_000


def is_free(grid: Grid, cell: Cell) -> bool:
    """Whether `cell` lies on the board and is no obstacle."""
    row, column = cell
    return 0 <= row < len(grid) and 0 <= column < len(grid[0]) and grid[row][column] == "."


def _framed(grid: Grid) -> Grid:
    """The board in a frame of obstacles as wide as the board, less one."""
    rows, columns = len(grid), len(grid[0])
    side, full = "#" * (columns - 1), "#" * (3 * columns - 2)
    frame = (full,) * (rows - 1)
    return (*frame, *(side + row + side for row in grid), *frame)


@lru_cache(maxsize=8192)
def _turned(grid: Grid, up: bool, left: bool) -> Grid:
    """The board upside down where `up`, mirrored where `left`, in a frame of obstacles."""
    rows = grid[::-1] if up else grid
    return _framed(tuple(row[::-1] for row in rows) if left else rows)


def around(grid: Grid, cell: Cell, toward: Cell) -> Grid:
    """All cells as seen from `cell`, which is in the middle of 2 n - 1 rows and columns.

    The view is turned so that `toward` is not above and not to the left of the middle. Cells off
    the board count as obstacles.
    """
    up, left = toward[0] < cell[0], toward[1] < cell[1]
    height, width = len(grid), len(grid[0])
    row = height - 1 - cell[0] if up else cell[0]
    column = width - 1 - cell[1] if left else cell[1]
    lines = _turned(grid, up, left)[row : row + 2 * height - 1]
    return tuple(line[column : column + 2 * width - 1] for line in lines)


def walk(grid: Grid, start: Cell, goal: Cell, moves: str) -> Cell:
    """Where `moves` lead from `start`: the goal and an impossible move both end the list."""
    cell = start
    for move in moves:
        delta = MOVES[move]
        ahead = (cell[0] + delta[0], cell[1] + delta[1])
        if cell == goal or not is_free(grid, ahead):
            break
        cell = ahead
    return cell


@lru_cache(maxsize=8192)
def distances(grid: Grid, goal: Cell) -> dict[Cell, int]:
    """Steps to `goal` from every cell that can reach it (breadth-first search)."""
    found = {goal: 0}
    queue = deque([goal])
    while queue:
        cell = queue.popleft()
        for delta in MOVES.values():
            ahead = (cell[0] + delta[0], cell[1] + delta[1])
            if ahead not in found and is_free(grid, ahead):
                found[ahead] = found[cell] + 1
                queue.append(ahead)
    return found


def random_board(
    rng: random.Random, size: int, obstacle_probability: float, detour: bool = False
) -> tuple[Grid, Cell, Cell]:
    """A board with two different free cells, start and goal, that a path connects.

    With `detour` the shortest path is longer than the straight (Manhattan) distance.

    Raises:
        ConfigError: Nearly no board is like that, or none.
    """
    for _ in range(_ATTEMPTS):
        grid = tuple(
            "".join("#" if rng.random() < obstacle_probability else "." for _ in range(size))
            for _ in range(size)
        )
        free = [(r, c) for r in range(size) for c in range(size) if grid[r][c] == "."]
        if len(free) < 2:
            continue
        start, goal = rng.sample(free, 2)
        to_goal = distances(grid, goal)
        if detour:
            starts = [
                c for c, d in to_goal.items() if d > abs(c[0] - goal[0]) + abs(c[1] - goal[1])
            ]
            if starts:
                return grid, rng.choice(starts), goal
        elif start in to_goal:
            return grid, start, goal
    raise ConfigError(
        f"obstacle_probability: got {obstacle_probability}, with which {_ATTEMPTS} boards of size "
        f"{size} had no way" + " that is a detour" * detour
    )
