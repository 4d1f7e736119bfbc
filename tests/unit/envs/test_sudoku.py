"""Sudoku: answers, givens, rewards and prompts on grids small enough to check by hand."""

import asyncio
import random

import pytest

from teamtune.envs import Reward, Sudoku, check_env
from teamtune.envs.sudoku import NoisySolver, grid
from teamtune.envs.sudoku.grid import parse_placements, solutions
from teamtune.errors import ConfigError
from teamtune.policies.tiny import expand
from teamtune.sandbox import Sandbox
from teamtune.tasks import Task

SOLUTION = [[1, 2, 3, 4], [3, 4, 1, 2], [2, 1, 4, 3], [4, 3, 2, 1]]
PUZZLE = [[1, 2, 3, 0], [3, 0, 1, 2], [2, 1, 0, 3], [4, 3, 2, 0]]
FOUR = Task("four", {"puzzle": PUZZLE, "solution": SOLUTION})
"""Four empty cells: 4 at (1, 4), 4 at (2, 2), 4 at (3, 3), 1 at (4, 4)."""
HARD = [
    [0, 0, 0, 0, 0, 0, 0, 1, 2],
    [0, 0, 0, 0, 3, 5, 0, 0, 0],
    [0, 0, 0, 6, 0, 0, 0, 7, 0],
    [7, 0, 0, 0, 0, 0, 3, 0, 0],
    [0, 0, 0, 4, 0, 0, 8, 0, 0],
    [1, 0, 0, 0, 0, 0, 0, 0, 0],
    [0, 0, 0, 1, 2, 0, 0, 0, 0],
    [0, 8, 0, 0, 0, 0, 0, 4, 0],
    [0, 5, 0, 0, 0, 0, 6, 0, 0],
]
"""Seventeen givens."""


def env(**changes):
    return Sudoku(**{"first_role": "none", **changes})


def flat(rows):
    return tuple(value for row in rows for value in row)


def play(environment, state, *answers):
    steps = []
    for answer in answers:
        (agent,) = environment.acting(state)
        steps.append(asyncio.run(environment.transition(state, {agent: answer})))
        state = steps[-1].state
    return steps


@pytest.mark.parametrize("first_role", ["proposer", "none"])
@pytest.mark.parametrize("prompts", ["chat", "compact"])
@pytest.mark.parametrize("size", [4, 9])
def test_the_contract_holds(first_role, prompts, size):
    environment = Sudoku(size, first_role=first_role, prompts=prompts)
    check_env(environment, [FOUR, environment.task(0)], max_states=8)


def test_the_planner_is_paid_by_the_cells_it_fills_in_correctly_and_for_the_end():
    environment = env()
    steps = play(
        environment,
        environment.reset(FOUR),
        "Cells: (1, 4, 4) (2, 2, 1)",  # right, wrong
        "(2, 2, 4) (1, 4, 3)",  # mended, spoilt
        "(1, 4, 4) (3, 3, 4)",
        "\n".join(" ".join(map(str, row)) for row in SOLUTION),
    )
    assert [s.rewards["planner"].local for s in steps] == pytest.approx([0.25, 0.0, 0.5, 0.25])
    assert [s.rewards["planner"].team for s in steps] == [0, 0, 0, 1]
    assert environment.draw(steps[0].state) == "1 2 3 4\n3 1 1 2\n2 1 0 3\n4 3 2 0"
    assert steps[-1].done and steps[-1].success and environment.acting(steps[-1].state) == ()


def test_a_broken_given_empties_the_grid():
    environment = env()
    start = environment.reset(FOUR)
    filled, broken = play(environment, start, "(1, 4, 4) (2, 2, 4)", "(3, 3, 4) (1, 1, 2)")
    assert environment.potential(filled.state) == 0.5
    assert environment.potential(broken.state) == 0 and broken.state == start
    assert broken.rewards["planner"].local == -0.5 and broken.malformed == ()
    copied = "1 2 3 4\n4 3 2 1\n2 1 4 3\n3 4 1 2"  # a right grid of another puzzle
    assert play(environment, start, copied)[0].rewards["planner"].local == 0


def test_a_proposal_fills_nothing_and_is_paid_by_its_would_be_progress():
    environment = env(first_role="proposer")
    step = play(environment, environment.reset(FOUR), "(1, 4, 4) (2, 2, 4)")[0]
    assert step.rewards["proposer"].shaping == 0.5 and step.state.cells == flat(PUZZLE)
    told = environment.observe(step.state, "planner")[-1]["content"]
    assert "Your partner proposes: (1, 4, 4) (2, 2, 4)\n" in told


def test_a_malformed_answer_earns_nothing_and_leaves_the_grid():
    environment = env()
    (step,) = play(environment, environment.reset(FOUR), "(1, 4, 4) (2, 2, 4)")
    for text in ("", "no", "(1, 4, 5)", "(0, 1, 1)", "1 2", "<think>(1, 4, 4)"):
        after = play(environment, step.state, text)[0]
        assert after.malformed == ("planner",) and after.state == step.state
        assert after.rewards["planner"] == Reward()


PLACED = ((1, 4, 4), (2, 2, 4))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("(1, 4, 4) (2, 2, 4)", PLACED),
        ("[[1, 4, 4], [2, 2, 4]]", PLACED),
        ("1,4,4 2,2,4", PLACED),
        ("1 4 4\n2 2 4", PLACED),
        ("1, 4, 4; 2, 2, 4", PLACED),
        ("1 4 4 2 2 4", PLACED),
        ("First (3, 3, 1), no.\nCells: **(1, 4, 4), (2, 2, 4)**.", PLACED),
        ("Both are (1, 4, 4) and (2, 2, 4).", PLACED),
        ("1 2 3 4\n3 4 1 2\n2 1 0 3\n4 3 2 0", PLACED),
        ("Grid:\n1,2,3,4\n3,4,1,2\n2,1,0,3\n4,3,2,0", PLACED),
        ("[[1,2,3,4],[3,4,1,2],[2,1,0,3],[4,3,2,0]]", PLACED),
        ("```\n1234\n3412\n2103\n4320\n```", PLACED),
        ("| 1 2 | 3 4 |\n| 3 4 | 1 2 |\n+-----+-----+\n| 2 1 | 0 3 |\n| 4 3 | 2 0 |", PLACED),
        ("1 2 3 4 3 4 1 2 2 1 0 3 4 3 2 0", PLACED),
        ("(1, 1, 1)", ()),  # a given
        ("1 2 3 4\n3 4 1 2", None),
        ("0 0 0 0\n" * 4, None),
        ("1 2 3 4\n" * 5, None),
        ("1 2 3 5\n" * 4, None),
        ("(1, 4)", None),
        ("(1, 4, x)", None),
        ("(1, 4, 40)", None),
        ("1,4,x", None),
        ("(1, 4, 4)" * 17, None),
        ("9" * 39_000, None),
        ("The grid is hard.", None),
        ("", None),
    ],
)
def test_parsing(text, found):
    assert parse_placements(text, flat(PUZZLE), 4) == found


def test_further_cells_are_ignored():
    environment = env(max_cells=1)
    step = play(environment, environment.reset(FOUR), "(1, 1, 1) (1, 4, 4) (2, 2, 4)")[0]
    assert step.rewards["planner"].local == 0.25


def test_the_solver_finds_all_solutions():
    assert list(solutions(flat(PUZZLE), 4)) == [flat(SOLUTION)]
    assert sum(1 for _ in solutions((0,) * 16, 4)) == 288
    assert list(solutions((1, 1, *(0,) * 14), 4)) == []
    (found,) = solutions(flat(HARD), 9)
    for index in range(9):
        row, column = found[9 * index : 9 * index + 9], found[index::9]
        corner = index // 3 * 27 + index % 3 * 3
        block = [found[corner + 9 * r + c] for r in range(3) for c in range(3)]
        assert set(row) == set(column) == set(block) == set(range(1, 10))
    assert all(given in (0, own) for given, own in zip(flat(HARD), found, strict=True))


def test_a_search_that_takes_too_long_is_given_up(monkeypatch):
    monkeypatch.setattr(grid, "_MOST_STEPS", 20)
    data = {"puzzle": HARD, "solution": [[1] * 9] * 9}
    with pytest.raises(ValueError, match="task hard: puzzle was not decided in 20 steps"):
        env().reset(Task("hard", data))


@pytest.mark.parametrize(("size", "empty"), [(4, None), (4, 10), (9, 20), (9, 45)])
def test_puzzles_have_one_solution_and_differ_by_seed(size, empty):
    environment = env(size=size, empty=empty)
    tasks = [environment.task(seed) for seed in range(5)]
    assert environment.task(3) == tasks[3]
    assert len({str(dict(t.data)) for t in tasks}) == 5
    for task in tasks:
        state = environment.reset(task)
        assert state.puzzle.count(0) == (empty or size * size // 2)
        answer = NoisySolver(noise=0).answer(environment, state, "planner", random.Random(0))
        assert play(environment, state, answer)[0].success


def changed(rows, *places):
    rows = [list(row) for row in rows]
    for row, column, value in places:
        rows[row][column] = value
    return rows


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"puzzle": 4}, "puzzle must be 4 rows of 4 numbers or 9 rows of 9"),
        ({"puzzle": PUZZLE[:3]}, "puzzle must be 4 rows of 4"),
        ({"puzzle": [*PUZZLE[:3], [4]]}, "puzzle must be 4 rows of 4"),
        ({"puzzle": changed(PUZZLE, (0, 0, 5))}, "puzzle must hold whole numbers from 0 to 4"),
        ({"puzzle": changed(PUZZLE, (0, 0, "1"))}, "puzzle must hold whole numbers"),
        ({"puzzle": changed(PUZZLE, (0, 0, True))}, "puzzle must hold whole numbers"),
        ({"solution": PUZZLE}, "solution must be a full grid"),
        ({"solution": HARD}, "solution must be a full grid"),
        ({"puzzle": SOLUTION}, "puzzle has no empty cell"),
        ({"puzzle": changed(PUZZLE, (0, 3, 1))}, "puzzle has no solution"),
        ({"puzzle": [[0] * 4] * 4}, "puzzle has more than one solution"),
        ({"solution": changed(SOLUTION, (0, 3, 3))}, "solution does not solve the puzzle"),
    ],
)
def test_puzzles_that_cannot_be_played_are_refused(data, message):
    with pytest.raises(ValueError, match=f"task bad: {message}"):
        env().reset(Task("bad", {**FOUR.data, **data}))


def test_settings_without_puzzles_are_told():
    with pytest.raises(ConfigError, match="^empty: got 17, allowed: 16 or less$"):
        env(empty=17)
    with pytest.raises(ConfigError, match="^empty: got 14, with which 200 puzzles of size 4"):
        env(empty=14).task(0)


SOLVE = """```python
import sys
rows = [list(map(int, line.split())) for line in sys.stdin]
assert rows == [[1, 2, 3, 0], [3, 0, 1, 2], [2, 1, 0, 3], [4, 3, 2, 0]]
print("Cells:", (1, 4, 4), (2, 2, 4))
```"""


def test_a_tool_reads_the_grid_and_proposes_what_its_program_prints():
    environment = env(first_role="tool", sandbox=Sandbox(timeout=5.0, workers=1))
    start = environment.reset(FOUR)
    step = play(environment, start, SOLVE)[0]
    assert step.state.proposals == (PLACED,) and step.rewards["tool"].shaping == 0.5
    answer = NoisySolver(noise=0).answer(environment, start, "tool", random.Random(0))
    assert len(play(environment, start, answer)[0].state.proposals[0]) == 4
    environment.sandbox.close()


def test_a_noisy_solver_begins_well():
    environment, rng = env(), random.Random(0)
    state = environment.reset(FOUR)
    answers = {NoisySolver(1.0, 1).answer(environment, state, "planner", rng) for _ in range(30)}
    assert len(answers) > 5 and {answer.split()[0] for answer in answers} == {"1,4,4"}


def test_prompts_show_the_puzzle_and_the_grid_as_it_stands():
    environment = env(max_cells=2, first_role="proposer")
    start = environment.reset(FOUR)
    told = environment.observe(start, "proposer")[-1]["content"]
    assert "1 2 3 0\n3 0 1 2\n2 1 0 3\n4 3 2 0\n" in told and "as it stands now" not in told
    assert "2 x 2 cells" in told and "At most 2 cells" in told
    state = play(environment, start, "(1, 4, 4)", "(1, 4, 3)", "(1, 4, 4)")[-1].state
    told = environment.observe(state, "planner")[-1]["content"]
    assert "now; what" in told and "1 2 3 3\n3 0 1 2" in told and told.endswith("(3, 3, 1)")
    compact = env(max_cells=2, first_role="proposer", prompts="compact")
    words = compact.observe(state, "planner")[0]["content"].split()
    assert words[:6] == ["1,1,1", "1,2,2", "1,3,3", "1,4,3?", "2,1,3", "2,2,0"]
    assert words[16:] == ["1,4,4", "-", "planner"]


def test_compact_prompts_and_demonstrations_are_made_of_a_short_list_of_words():
    patterns = ["{1..4},{1..4},{0..4}", "{1..4},{1..4},{1..4}?", "{-,none,proposer,planner}"]
    known = {word for pattern in patterns for word in expand(pattern)}
    environment = env(first_role="proposer", prompts="compact")
    solver, rng = NoisySolver(0.5), random.Random(0)
    for seed in range(5):
        state = environment.reset(environment.task(seed))
        for _ in range(6):
            for agent in environment.acting(state):
                said = solver.answer(environment, state, agent, rng)
                words = environment.observe(state, agent)[0]["content"].split() + said.split()
                assert set(words) <= known
                state = play(environment, state, said)[0].state
