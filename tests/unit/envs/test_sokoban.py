"""Sokoban: pushes, deadlocks, rewards and prompts in rooms small enough to check by hand."""

import asyncio
import random
from collections import deque

import pytest

from teamtune.envs import Reward, Sokoban, check_env
from teamtune.envs.sokoban import NoisySolver
from teamtune.envs.sokoban.room import draw_room, fewest_pushes, pushes_left, read_room, walk
from teamtune.errors import ConfigError
from teamtune.policies.tiny import expand
from teamtune.sandbox import Sandbox
from teamtune.tasks import Task

LINE = Task("line", {"room": ["#######", "#@.$.x#", "#######"]})
"""R R R solves it, with two pushes."""
OPEN = Task("open", {"room": ["######", "#....#", "#.$@.#", "#..x.#", "######"]})
"""A push to the left puts the box to the wall for good; U L D R D ... brings it to the target."""


def env(**changes):
    return Sokoban(**{"first_role": "none", "max_moves": 4, **changes})


def play(environment, state, *answers):
    steps = []
    for answer in answers:
        (agent,) = environment.acting(state)
        steps.append(asyncio.run(environment.transition(state, {agent: answer})))
        state = steps[-1].state
    return steps


def searched(room, player, boxes):
    """The fewest pushes by a forward search over every cell of the player; None for a deadlock."""
    best, pending = {(player, boxes): 0}, deque([(player, boxes)])
    while pending:
        state = pending.popleft()
        if room.solved(state[1]):
            return best[state]
        for move in "UDLR":
            after = walk(room, *state, move)
            pushed = after[1] != state[1]
            if best[state] + pushed < best.get(after, 1 << 30):
                best[after] = best[state] + pushed
                (pending.append if pushed else pending.appendleft)(after)
    return None


@pytest.mark.parametrize("first_role", ["proposer", "none"])
@pytest.mark.parametrize("prompts", ["chat", "compact"])
def test_the_contract_holds(first_role, prompts):
    environment = Sokoban(6, 1, max_moves=4, first_role=first_role, prompts=prompts)
    check_env(environment, [LINE, OPEN, environment.task(0)], max_states=15)


def test_no_list_that_fails_outscores_one_that_solves():
    environment = env(max_moves=1)
    start = environment.reset(OPEN)
    failed, solved, seen, pending = [], [], {start}, [start]
    for state in pending:  # all that can be reached
        for move in "UDLR":
            step = play(environment, state, move)[0]
            value = environment.potential(step.state) - environment.potential(start)
            (solved if step.success else failed).append(value + step.success)
            if not step.done and step.state not in seen:
                seen.add(step.state)
                pending.append(step.state)
    assert set(solved) == {2.0} and max(failed) < 2.0


def test_the_planner_is_paid_by_the_pushes_that_are_left_and_for_the_end():
    environment = env()
    start = environment.reset(LINE)
    near, end = play(environment, start, "R R", "Moves: R, R, R")
    assert near.rewards["planner"].local == pytest.approx(1 / 2)
    assert near.rewards["planner"].team == 0 and not near.done
    assert environment.draw(near.state) == "#######\n#..@$x#\n#######"
    assert end.rewards["planner"].local == pytest.approx(1 / 2)
    assert end.rewards["planner"].team == 1
    assert end.done and end.success and environment.acting(end.state) == ()
    assert environment.draw(end.state) == "#######\n#...@*#\n#######"


def test_a_proposal_moves_nothing_and_is_paid_by_its_would_be_progress():
    environment = env(first_role="proposer")
    step = play(environment, environment.reset(LINE), "R R R")[0]
    assert step.rewards["proposer"].shaping == 1 and step.rewards["proposer"].team == 0
    assert environment.draw(step.state) == "#######\n#@.$.x#\n#######" and not step.done
    assert "R R R" in environment.observe(step.state, "planner")[-1]["content"]


def test_walking_and_undoing_pay_nothing():
    environment = env()
    there, back = play(environment, environment.reset(LINE), "R", "L")
    assert there.rewards["planner"].local == back.rewards["planner"].local == 0
    room = Task("back", {"room": ["#########", "#..@$..x#", "#.......#", "#.......#", "#########"]})
    steps = play(environment, environment.reset(room), "R D R R", "R U L L")
    assert [s.rewards["planner"].local for s in steps] == pytest.approx([1 / 3, -1 / 3])


def test_a_deadlock_ends_the_episode_and_is_worse_than_any_position_that_can_be_solved():
    environment = env()
    start = environment.reset(OPEN)
    step = play(environment, start, "L")[0]
    assert step.done and not step.success and environment.acting(step.state) == ()
    most = fewest_pushes(start.room, 1).most
    assert environment.potential(step.state) == -(most + 1) / start.start
    assert step.rewards["planner"].local == pytest.approx(1 - (most + 1) / start.start)


def test_a_malformed_answer_earns_nothing_and_leaves_the_room():
    environment = env(max_moves=3)
    state = environment.reset(OPEN)
    for text in ("", "go left", "L, X", "<think>L"):
        step = play(environment, state, text)[0]
        assert step.rewards["planner"] == Reward()
        assert step.malformed == ("planner",) and step.state == state


def test_walls_and_boxes_that_cannot_be_pushed_end_a_list():
    environment = env(max_moves=9)
    rows = ["#######", "#.....#", "#....x#", "#@$$.x#", "#.....#", "#######"]
    start = environment.reset(Task("two", {"room": rows}))
    assert environment.draw(play(environment, start, "L U")[0].state).split("\n") == rows
    assert environment.draw(play(environment, start, "R D")[0].state).split("\n") == rows
    assert play(environment, start, "D R")[0].state.player != start.player


@pytest.mark.parametrize(("size", "boxes"), [(5, 1), (6, 1), (6, 2), (7, 2)])
def test_the_fewest_pushes_are_those_of_a_forward_search(size, boxes):
    environment = Sokoban(size, boxes, min_pushes=1)
    rng, deadlocks = random.Random(0), 0
    for seed in range(6):
        state = environment.reset(environment.task(seed))
        player, stones = state.player, state.boxes
        for _ in range(12):
            left = pushes_left(state.room, player, stones)
            assert left == searched(state.room, player, stones)
            deadlocks += left is None
            player, stones = walk(state.room, player, stones, rng.choice("UDLR"))
    assert deadlocks or boxes == 1


@pytest.mark.parametrize(
    ("size", "boxes", "pushes"), [(6, 1, 2), (6, 2, 4), (7, 3, 3), (8, 2, 6), (10, 1, 3)]
)
def test_rooms_can_be_solved_differ_by_seed_and_need_the_pushes_asked_for(size, boxes, pushes):
    environment = Sokoban(size, boxes, min_pushes=pushes, max_moves=400, first_role="none")
    tasks = [environment.task(seed) for seed in range(10)]
    assert environment.task(7) == tasks[7]
    assert len({str(dict(t.data)) for t in tasks}) == 10
    for task in tasks:
        state = environment.reset(task)
        assert len(task.data["room"]) == size and state.boxes.bit_count() == boxes
        assert state.start >= pushes
        answer = NoisySolver(noise=0).answer(environment, state, "planner", random.Random(0))
        assert play(environment, state, answer)[0].success
        pushed, player, stones = 0, state.player, state.boxes
        for move in answer.split():
            player, after = walk(state.room, player, stones, move)
            pushed, stones = pushed + (after != stones), after
        assert pushed == state.start


def test_a_noisy_solver_begins_well():
    environment = env(max_moves=8, size=6)
    worth = []
    for noise in (0.0, 1.0):
        solver, rng = NoisySolver(noise, sure_moves=1), random.Random(0)
        state = environment.reset(LINE)
        answers = [solver.answer(environment, state, "planner", rng) for _ in range(20)]
        assert {answer[0] for answer in answers} == {"R"}
        worth.append(sum(play(environment, state, answer)[0].success for answer in answers))
    assert worth[0] == 20 > worth[1]


def test_every_mark_is_read_and_drawn():
    rows = ["#####", "#+$.#", "#.*x#", "#####"]
    room, player, boxes = read_room(rows)
    assert draw_room(room, 4, player, boxes) == rows
    assert (player.bit_count(), boxes.bit_count(), room.targets.bit_count()) == (1, 2, 3)


@pytest.mark.parametrize(
    ("room", "message"),
    [
        ([], "equally long rows"),
        (["#@$x#", "#"], "equally long rows"),
        ([1, 2], "equally long rows"),
        (["@$x "], "room has ' ', allowed: # . x"),
        (["..$x"], "one player, got 0"),
        (["@@$x"], "one player, got 2"),
        (["@..x"], "got 0 boxes and 1 targets"),
        (["@$.$x"], "got 2 boxes and 1 targets"),
        (["$@x"], "cannot be solved"),
        (["@.*"], "solved already"),
        (["." * 30] * 14 + ["@$$$$xxxx" + "." * 21], "more than 20000 positions of 4 boxes"),
    ],
)
def test_rooms_that_cannot_be_played_are_refused(room, message):
    with pytest.raises(ValueError, match=f"task bad: .*{message}"):
        env().reset(Task("bad", {"room": room}))


def test_settings_without_rooms_are_told():
    with pytest.raises(ConfigError, match="^size: got 3, allowed: 4 to 20$"):
        Sokoban(size=3)
    with pytest.raises(ConfigError, match="^min_pushes: got 99, which none of 1000 rooms"):
        Sokoban(size=4, min_pushes=99).task(0)
    with pytest.raises(ConfigError, match="^boxes: got 6 with size 12: room has more than 20000"):
        Sokoban(size=12, boxes=6).task(0)


SEARCH = """```python
import sys
rows = sys.stdin.read().split()
assert rows == ["#######", "#@.$.x#", "#######"]
print("Moves: R R")
```"""


def test_a_tool_reads_the_room_and_proposes_what_its_program_prints():
    environment = env(first_role="tool", sandbox=Sandbox(timeout=5.0, workers=1))
    start = environment.reset(LINE)
    step = play(environment, start, SEARCH)[0]
    assert step.state.proposals == ("RR",) and step.rewards["tool"].shaping == pytest.approx(1 / 2)
    answer = NoisySolver(noise=0).answer(environment, start, "tool", random.Random(0))
    assert play(environment, start, answer)[0].state.proposals == ("RRR",)
    environment.sandbox.close()


def test_prompts_show_the_room():
    state = env().reset(OPEN)
    told = env().observe(state, "planner")[-1]["content"]
    assert "5 rows and 6 columns" in told and "\n".join(OPEN.data["room"]) in told
    (compact,) = env(prompts="compact").observe(state, "planner")
    words = compact["content"].split()
    inner = "".join(row[1:-1] for row in OPEN.data["room"][1:-1])
    assert words == [f"{i}:{mark}" for i, mark in enumerate(inner)] + ["none", "planner"]
    team = env(first_role="proposer", prompts="compact")
    after = play(team, team.reset(OPEN), "U L")[0].state
    words = team.observe(after, "planner")[0]["content"].split()
    assert words[12:] == ["U", "L", "-", "-", "planner"]


def test_compact_prompts_and_demonstrations_are_made_of_a_short_list_of_words():
    patterns = ["{0..15}:{#,.,$,@,x,*,+}", "{U,D,L,R,-,none,proposer,planner}"]
    known = {word for pattern in patterns for word in expand(pattern)}
    environment = env(size=6, first_role="proposer", prompts="compact")
    solver, rng = NoisySolver(0.5), random.Random(0)
    for seed in range(5):
        state = environment.reset(environment.task(seed))
        for _ in range(6):
            for agent in environment.acting(state):
                said = solver.answer(environment, state, agent, rng)
                words = environment.observe(state, agent)[0]["content"].split() + said.split()
                assert set(words) <= known
                state = play(environment, state, said)[0].state
