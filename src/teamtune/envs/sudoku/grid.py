"""Sudoku grids: rules, a solver that proves a solution unique, random puzzles, lists in answers.

A grid is all its cells row by row, 0 where one is empty. Blocks of an n x n grid have sqrt(n) rows
and columns.
"""

import itertools
import math
import random
import re
from collections.abc import Iterator
from functools import lru_cache

Grid = tuple[int, ...]
Placement = tuple[int, int, int]
"""Row and column, counted from 1, and a value."""

SIZES = (4, 9)
_MOST_STEPS = 50_000
_ANSWER = re.compile(r"(?:grid|cells|answer)\s*:", re.IGNORECASE)
_DECORATION = str.maketrans(dict.fromkeys("`*|+-.'\"", " "))
_GROUP = re.compile(r"[\[(]([^\[\]()]*)[\])]")
_CHAIN = re.compile(r"\d+(?:[ \t]*,[ \t]*\d+)*")
_NUMBER = re.compile(r"\d+")
_VALUES = {str(value): value for value in range(10)}


class Undecided(ValueError):
    """A search that was given up."""


@lru_cache
def peers(size: int) -> tuple[tuple[int, ...], ...]:
    """For each cell the others of its row, column and block."""
    block = math.isqrt(size)

    def units(index: int) -> tuple[tuple[int, int], ...]:
        row, column = divmod(index, size)
        return (0, row), (1, column), (2, row // block * block + column // block)

    cells = range(size * size)
    return tuple(tuple(j for j in cells if j != i and set(units(i)) & set(units(j))) for i in cells)


def solutions(grid: Grid, size: int, rng: random.Random | None = None) -> Iterator[Grid]:
    """The solutions of a grid, one after the other; with `rng` in a random order.

    Raises Undecided where they are not found in a great number of steps.
    """
    options = [(1 << size) - 1] * len(grid)
    for index, value in enumerate(grid):
        if value and not _put(options, index, 1 << value - 1, size):
            return
    pending, steps = [options], 0
    while pending:
        options = pending.pop()
        steps += 1
        if steps > _MOST_STEPS:
            raise Undecided(f"puzzle was not decided in {_MOST_STEPS} steps")
        open_cells = [(o.bit_count(), i) for i, o in enumerate(options) if o & o - 1]
        if not open_cells:
            yield tuple(option.bit_length() for option in options)
            continue
        index = min(open_cells)[1] if rng is None else _narrowest(open_cells, rng)
        values = [1 << v for v in range(size) if options[index] >> v & 1]
        if rng is not None:
            rng.shuffle(values)
        for value in values:
            branch = options.copy()
            if _put(branch, index, value, size):
                pending.append(branch)


def random_puzzle(rng: random.Random, size: int, empty: int) -> tuple[Grid, Grid] | None:
    """A puzzle with `empty` empty cells and its only solution; None where the draw had none."""
    solution = next(solutions((0,) * (size * size), size, rng))
    puzzle = list(solution)
    for index in rng.sample(range(size * size), size * size):
        if puzzle.count(0) == empty:
            break
        puzzle[index] = 0
        if _has_another(tuple(puzzle), size, index, solution[index]):
            puzzle[index] = solution[index]
    return (tuple(puzzle), solution) if puzzle.count(0) == empty else None


def parse_placements(text: str, puzzle: Grid, size: int) -> tuple[Placement, ...] | None:
    """The cells that an answer fills, those left out that repeat a given of `puzzle`.

    None where it is neither a grid nor a list of placements. A grid has a value for every cell, row
    by row, 0 for one that it leaves as it is. A placement is (row, column, value). Rows and
    placements stand in brackets, on lines of their own, or are joined by commas. What stands before
    the last `Grid:` or `Cells:` is reasoning.
    """
    if ":" in text:
        text = _ANSWER.split(text)[-1]
    groups = _groups(text.translate(_DECORATION), size)
    try:
        numbers = [[_VALUES[word] for word in group] for group in groups if group]
    except KeyError:
        return None
    if len(numbers) == 1 and len(numbers[0]) > size:  # all in one line
        length = size if len(numbers[0]) == len(puzzle) else 3
        numbers = [numbers[0][i : i + length] for i in range(0, len(numbers[0]), length)]
    values = list(itertools.chain.from_iterable(numbers))
    lengths = set(map(len, numbers))
    if lengths == {size} and len(values) == len(puzzle):
        if not set(values) <= set(range(size + 1)) or not any(values):
            return None
        filled = zip(_places(size), values, puzzle)
        return tuple((r, c, own) for (r, c), own, given in filled if own and own != given)
    if lengths != {3} or not set(values) <= set(range(1, size + 1)) or len(numbers) > len(puzzle):
        return None
    return tuple((r, c, v) for r, c, v in numbers if puzzle[(r - 1) * size + c - 1] != v)


@lru_cache
def _places(size: int) -> tuple[tuple[int, int], ...]:
    """Row and column of every cell."""
    numbers = range(1, size + 1)
    return tuple((row, column) for row in numbers for column in numbers)


def _groups(body: str, size: int) -> Iterator[list[str]]:
    """The words that belong together, numbers or not."""
    if any(mark in body for mark in "[("):
        for inside in _GROUP.findall(body):
            yield inside.replace(",", " ").split()
        return
    for line in body.replace(";", "\n").split("\n"):
        if "," in line:
            yield from (chain.replace(",", " ").split() for chain in _CHAIN.findall(line))
            yield from ([word] for word in _CHAIN.sub(" ", line).split() if word != ",")
        elif words := line.split():
            together = len(words) == 1 and len(words[0]) == size
            yield list(words[0]) if together else words


def _put(options: list[int], index: int, value: int, size: int) -> bool:
    """Gives a cell its value, and others what follows from it; False for a contradiction."""
    if not options[index] & value:
        return False
    options[index] = value
    around = peers(size)
    settled = [index]
    for cell in settled:  # grows
        value = options[cell]
        for peer in around[cell]:
            if options[peer] & value:
                left = options[peer] = options[peer] & ~value
                if not left:
                    return False
                if not left & left - 1:
                    settled.append(peer)
    return True


def _narrowest(open_cells: list[tuple[int, int]], rng: random.Random) -> int:
    fewest = min(open_cells)[0]
    return rng.choice([index for count, index in open_cells if count == fewest])


def _has_another(puzzle: Grid, size: int, index: int, value: int) -> bool:
    """Whether a puzzle can be solved with another value in a cell."""
    for other in range(1, size + 1):
        tried = (*puzzle[:index], other, *puzzle[index + 1 :])
        if other != value and next(solutions(tried, size), None) is not None:
            return True
    return False
