"""Plan-Path: moves, rewards and prompts on boards small enough to check by hand."""

import asyncio
import itertools
import random

import pytest

from teamtune.envs import PlanPath, Reward, check_env
from teamtune.envs.plan_path import DetourTasks, NoisySolver
from teamtune.envs.plan_path.board import around, distances, is_free, walk
from teamtune.errors import ConfigError
from teamtune.sandbox import Sandbox
from teamtune.tasks import Task

BOARD = Task("board", {"grid": ["..#", ".#.", "..."], "start": (0, 1), "goal": (2, 2)})
"""S at (0, 1); the only way is L D D R R, five moves, two more than the straight distance."""


def env(**changes):
    return PlanPath(**{"size": 3, "first_role": "proposer", "max_moves": 4, **changes})


def play(environment, state, *answers):
    steps = []
    for answer in answers:
        (agent,) = environment.acting(state)
        steps.append(asyncio.run(environment.transition(state, {agent: answer})))
        state = steps[-1].state
    return steps


@pytest.mark.parametrize("first_role", ["proposer", "none"])
@pytest.mark.parametrize("prompts", ["chat", "compact"])
def test_the_contract_holds(first_role, prompts):
    for proposers in {1, 1 if first_role == "none" else 2}:
        environment = PlanPath(6, 0.22, 4, first_role, prompts, proposers=proposers)
        check_env(environment, [environment.task(seed) for seed in range(3)])


def test_no_path_that_fails_outscores_one_that_solves():
    environment = env(first_role="none", max_moves=1)
    start = environment.reset(BOARD)
    failed, solved = [], []
    for moves in itertools.product("UDLR", repeat=5):
        state, success = start, False
        for move in moves:
            step = asyncio.run(environment.transition(state, {"planner": move}))
            state, success = step.state, step.success
            if step.done:
                break
        value = environment.potential(state) - environment.potential(start) + success
        (solved if success else failed).append(value)
    assert solved and max(failed) < min(solved)
    assert set(solved) == {2.0}


def test_a_proposal_moves_nothing_and_is_paid_by_its_would_be_progress():
    environment = env()
    first = play(environment, environment.reset(BOARD), "L D")[0]
    assert first.state.cell == (0, 1)
    assert first.rewards["proposer"].shaping == pytest.approx(2 / 5)
    assert first.rewards["proposer"].team == first.rewards["proposer"].local == 0
    assert not first.done
    assert "L D" in environment.observe(first.state, "planner")[-1]["content"]


def test_the_planner_is_paid_by_the_change_of_the_distance_and_for_the_goal():
    environment = env()
    _, back, _, there = play(environment, environment.reset(BOARD), "L", "R", "L", "L D D R")
    assert back.rewards["planner"].local == 0
    assert there.rewards["planner"].local == pytest.approx(4 / 5)
    assert there.rewards["planner"].team == 0
    _, last = play(environment, there.state, "R", "R U L L")
    assert last.rewards["planner"].local == pytest.approx(1 / 5)
    assert last.rewards["planner"].team == 1
    assert last.done and last.success and environment.acting(last.state) == ()


def test_doing_and_undoing_pays_nothing():
    environment = env(first_role="none")
    steps = play(environment, environment.reset(BOARD), "L D", "U R", "L", "R")
    assert sum(s.rewards["planner"].local for s in steps) == pytest.approx(0)


def test_a_malformed_answer_earns_nothing_and_leaves_the_position():
    environment = env(first_role="none", max_moves=3)
    state = environment.reset(BOARD)
    for text in ("", "go left", "L, X", "🙂", "Moves:"):
        step = play(environment, state, text)[0]
        assert step.rewards["planner"] == Reward()
        assert step.state.cell == state.cell and not step.done
        assert step.malformed == ("planner",)


def test_running_out_of_turns_is_no_success():
    environment = env(first_role="none")
    assert not any(s.success for s in play(environment, environment.reset(BOARD), *["U"] * 8))


def test_walls_edges_and_the_goal_end_a_list():
    grid = ("..#", ".#.", "...")
    assert walk(grid, (0, 1), (2, 2), "DL") == (0, 1)
    assert walk(grid, (0, 1), (2, 2), "LLD") == (0, 0)
    assert walk(grid, (2, 1), (2, 2), "RL") == (2, 2)


def test_the_view_has_the_position_in_the_middle_and_the_goal_ahead():
    grid = ("..#.", ".#..", "....")
    cells = list(itertools.product(range(3), range(4)))
    for (row, column), goal in itertools.product(cells, cells):
        view = around(grid, (row, column), goal)
        assert len(view) == 5 and {len(line) for line in view} == {7}
        down, right = (1 if goal[0] >= row else -1), (1 if goal[1] >= column else -1)
        for i, j in itertools.product(range(5), range(7)):
            free = is_free(grid, (row + down * (i - 2), column + right * (j - 3)))
            assert view[i][j] == ("." if free else "#")


def test_boards_are_solvable_differ_by_seed_and_have_the_density_asked_for():
    environment = PlanPath(10, 0.22, 8, "proposer")
    tasks = [environment.task(seed) for seed in range(300)]
    assert environment.task(7) == tasks[7]
    assert len({str(dict(t.data)) for t in tasks}) == 300
    share = sum(row.count("#") for t in tasks for row in t.data["grid"]) / 30000
    assert 0.20 < share < 0.23
    for task in tasks:
        environment.reset(task)


def is_detour(task):
    (row, column), goal = task.data["start"], task.data["goal"]
    shortest = distances(tuple(task.data["grid"]), goal)[task.data["start"]]
    return shortest > abs(row - goal[0]) + abs(column - goal[1])


def test_training_boards_can_have_more_detours():
    environment = PlanPath(6, 0.22, 4, "proposer")
    plain = DetourTasks(0, detour_share=0).take(environment, 0, 200)
    assert plain == [environment.task(seed) for seed in range(200)]
    assert sum(map(is_detour, plain)) < 60
    assert all(map(is_detour, DetourTasks(0, detour_share=1).take(environment, 0, 50)))
    assert (
        0.5
        < sum(map(is_detour, DetourTasks(0, detour_share=0.6).take(environment, 0, 200))) / 200
        < 0.8
    )


@pytest.mark.parametrize(
    "data",
    [
        {"grid": ["..", "."], "start": (0, 0), "goal": (0, 1)},
        {"grid": ["..", ".x"], "start": (0, 0), "goal": (0, 1)},
        {"grid": ["..", ".."], "start": (0, 0), "goal": (0, 0)},
        {"grid": [".#", "#."], "start": (0, 0), "goal": (1, 1)},
        {"grid": [".#", ".."], "start": (0, 0), "goal": (0, 1)},
        {"grid": [], "start": (0, 0), "goal": (0, 1)},
    ],
)
def test_impossible_boards_are_refused(data):
    with pytest.raises(ValueError, match="task bad"):
        env().reset(Task("bad", data))


@pytest.fixture(scope="module")
def tooled():
    environment = env(first_role="tool", sandbox=Sandbox(timeout=2.0, workers=1))
    yield environment
    environment.sandbox.close()


SEARCH = """Breadth first:
```python
import sys
rows = sys.stdin.read().split()
spot = {m: (r, c) for r, row in enumerate(rows) for c, m in enumerate(row)}
ways, seen = [(spot["S"], "")], {spot["S"]}
for cell, way in ways:
    if cell == spot["G"]:
        print("Moves:", *way)
    for move, (down, right) in {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}.items():
        r, c = ahead = cell[0] + down, cell[1] + right
        if 0 <= r < 3 and 0 <= c < 3 and rows[r][c] != "#" and ahead not in seen:
            seen.add(ahead)
            ways.append((ahead, way + move))
```"""


def fenced(code):
    return f"```python\n{code}\n```"


def test_a_tool_proposes_what_its_program_prints(tooled):
    first, moved, again, last = play(
        tooled, tooled.reset(BOARD), SEARCH, "L D", fenced("print(['D', 'R', 'R'])"), "D R R"
    )
    assert (first.state.proposals, again.state.proposals) == (("LDDR",), ("DRR",))  # four at most
    assert first.rewards["tool"].shaping == pytest.approx(4 / 5)
    assert (first.state.cell, moved.state.cell, first.malformed) == ((0, 1), (1, 0), ())
    assert "L D D R" in tooled.observe(first.state, "planner")[-1]["content"]
    assert "S" in tooled.observe(moved.state, "tool")[-1]["content"]
    assert last.success


FAILING = ["print(1 / 0)", "moves = 'L'", "print('L')\n1 / 0", "while True: pass", "print('X')"]


@pytest.mark.parametrize("answer", ["L D", "", *map(fenced, FAILING)])
def test_a_program_that_fails_or_prints_no_list_is_malformed(tooled, answer):
    step = play(tooled, tooled.reset(BOARD), answer)[0]
    assert step.malformed == ("tool",) and step.rewards["tool"] == Reward()
    assert (step.state.cell, step.state.proposals, step.done) == ((0, 1), (None,), False)


def test_a_tool_keeps_the_contract(tooled):
    tooled.check()
    check_env(tooled, [BOARD], max_states=8)


def test_a_sandbox_where_no_programs_run_is_refused():
    with pytest.raises(ConfigError, match="sandbox: allowed with first_role proposer: null"):
        env(sandbox=Sandbox())
    assert env().sandbox is None


def test_a_solver_as_a_tool_writes_a_program(tooled):
    state = tooled.reset(BOARD)
    answer = NoisySolver(noise=0).answer(tooled, state, "tool", random.Random(0))
    assert play(tooled, state, answer)[0].state.proposals == ("LDDR",)


def test_the_solver_without_noise_is_optimal_and_the_noisy_one_starts_right():
    environment = env(size=6, max_moves=30, first_role="none")
    rng = random.Random(0)
    for seed in range(20):
        state = environment.reset(environment.task(seed))
        best = distances(state.grid, state.goal)[state.start]
        answer = NoisySolver(noise=0).answer(environment, state, "planner", rng)
        assert len(answer.split()) == best
        assert play(environment, state, answer)[0].success
        first = NoisySolver(noise=1, sure_moves=1).answer(environment, state, "planner", rng)
        moved = walk(state.grid, state.cell, state.goal, first[0])
        assert distances(state.grid, state.goal)[moved] == best - 1


def test_thoughts_are_not_played_and_unfinished_ones_are_malformed():
    environment = env(first_role="none")
    start = environment.reset(BOARD)
    thinking, thought = play(environment, start, "<think>L D", "<think>U U</think>\nL D")
    assert thinking.malformed == ("planner",) and thinking.state.cell == (0, 1)
    assert thought.malformed == () and thought.state.cell == (1, 0)


def test_boards_need_not_be_square():
    environment = env()
    wide = Task("wide", {"grid": ["....", "#..."], "start": (0, 0), "goal": (1, 3)})
    state = environment.reset(wide)
    assert environment.draw(state) == "S...\n#..G"
    told = environment.observe(state, "planner")[-1]["content"]
    assert "2 rows and 4 columns" in told and "S...\n#..G" in told
    (compact,) = env(prompts="compact").observe(state, "proposer")
    words = compact["content"].split()
    assert words[0] == "1,3" and words[-1] == "proposer"
    assert len(words) == 2 + 2 * (2 + 2)  # two words a row: one ahead of us, ours and two behind


def test_a_board_too_large_to_be_made_is_told():
    with pytest.raises(ConfigError, match="^size: got 1000000000, allowed: 2 to 50$"):
        PlanPath(size=10**9)


def test_a_planner_without_a_scout_is_told_of_none():
    def told(first_role):
        environment = env(first_role=first_role, prompts="chat")
        state = environment.reset(BOARD)
        if first_role != "none":
            state = play(environment, state, "nothing")[0].state
        return environment.observe(state, "planner")[-1]["content"]

    assert "scout" not in told("none") and "no usable proposal" in told("proposer")
    assert told("none").endswith("Moves: U R R D")


@pytest.mark.parametrize("settings", [{"size": 2}, {"obstacle_probability": 0.0}])
def test_boards_that_cannot_be_are_told(settings):
    with pytest.raises(ConfigError, match="boards of size . had no way that is a detour"):
        env(**settings).task(0, detour=True)


def test_several_proposers_act_at_once_and_the_planner_reads_them_all():
    environment = PlanPath(first_role="proposer", proposers=3, max_moves=4)
    assert environment.agents == ("proposer_1", "proposer_2", "proposer_3", "planner")
    state = environment.reset(BOARD)
    assert environment.acting(state) == environment.agents[:3]
    said = {"proposer_1": "L D D R", "proposer_2": "nonsense", "proposer_3": "L"}
    step = asyncio.run(environment.transition(state, said))
    assert step.state.proposals == ("LDDR", None, "L")
    assert step.malformed == ("proposer_2",)
    for name, answer in said.items():  # each is paid as if it were the only one
        assert step.rewards[name] == play(env(), env().reset(BOARD), answer)[0].rewards["proposer"]
    assert environment.acting(step.state) == ("planner",)
    told = environment.observe(step.state, "planner")[-1]["content"]
    assert "Your scout 1 proposes: L D D R\nYour scout 3 proposes: L\nCheck the proposals" in told
    with pytest.raises(ConfigError, match="proposers: got 2, allowed with first_role none: 1"):
        PlanPath(first_role="none", proposers=2)
