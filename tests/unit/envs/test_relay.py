"""Relay: who sees what, what words are worth, and what can be had without them."""

import asyncio
import itertools
import random

import pytest

from teamtune.envs import check_env
from teamtune.envs.plan_path.board import distances, is_free, walk
from teamtune.envs.relay import Babbler, Relay, random_success, single_agent_ceiling
from teamtune.envs.relay.environment import shortest_way
from teamtune.envs.relay.words import LETTERS, Channel, named_cell
from teamtune.errors import ConfigError
from teamtune.tasks import Task

BOARD = Task("board", {"grid": ["..#", ".#.", "..."], "start": (0, 1), "goal": (2, 2)})
"""S at (0, 1); the only way is L D D R R, five moves."""
VARIANTS = [
    {},
    {"goal": "known", "sight": 0},
    {"scouts": 0, "goal": "known"},
    {"scouts": 2},
    {"code_book": True, "words": ["U", "D", "L", "R"]},
    {"asks": True, "words": ["a", "b", "c"], "max_words": 2},
    {"asks": True, "scouts": 3, "code_book": True},
]


def env(**changes):
    return Relay(**{"size": 3, **changes})


def play(environment, state, *answers):
    """The steps of a path; scouts all give the same answer."""
    steps = []
    for answer in answers:
        actions = dict.fromkeys(environment.acting(state), answer)
        steps.append(asyncio.run(environment.transition(state, actions)))
        state = steps[-1].state
    return steps


def told(environment, state, agent):
    return "\n".join(m["content"] for m in environment.observe(state, agent))


@pytest.mark.parametrize("prompts", ["chat", "compact"])
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_the_contract_holds(variant, prompts):
    environment = env(prompts=prompts, **variant)
    check_env(environment, [BOARD], max_states=12)


@pytest.mark.parametrize("prompts", ["chat", "compact"])
def test_an_actor_is_told_what_is_near_it_and_what_was_said(prompts):
    """Boards that differ two cells away, in an obstacle and in the goal, look the same to it."""
    environment = env(size=4, prompts=prompts)
    near, far = ["....", "....", "....", "...."], ["..#.", "....", "...#", "...."]
    one = Task("one", {"grid": near, "start": (0, 0), "goal": (3, 3)})
    two = Task("two", {"grid": far, "start": (0, 0), "goal": (3, 0)})

    def heard(task, message):
        state = play(environment, environment.reset(task), message)[0].state
        return told(environment, state, "actor")

    assert heard(one, "this way") == heard(two, "this way") != heard(two, "that way")
    known = env(size=4, prompts=prompts, goal="known")
    starts = [play(known, known.reset(task), "go")[0].state for task in (one, two)]
    assert told(known, starts[0], "actor") != told(known, starts[1], "actor")


def test_the_cells_around_the_actor_are_as_they_lie():
    text = told(env(scouts=0), env(scouts=0).reset(BOARD), "actor")
    assert "\n###\n.S#\n.#.\n" in text
    assert "\n..#\n" in told(env(), env().reset(BOARD), "scout").replace(".S#", "..#")


def test_a_state_is_drawn_with_what_was_said():
    environment = env()
    said = play(environment, environment.reset(BOARD), "over here")[0].state
    assert environment.draw(said) == ".S#\n.#.\n..G\nscout: over here"


def test_a_message_moves_nothing_and_earns_nothing():
    environment = env()
    said, moved = play(environment, environment.reset(BOARD), "so far, so good", "L D")
    assert said.state.board == environment.reset(BOARD).board
    assert said.state.messages == (("so", "far,", "so", "good"),)
    assert said.rewards["scout"].local == said.rewards["scout"].shaping == 0
    assert not said.outcome.judged and moved.outcome.judged
    assert moved.state.messages == () and environment.acting(moved.state) == ("scout",)


def test_the_actor_is_paid_by_the_change_of_the_distance_and_for_the_goal():
    environment = env()
    start = environment.reset(BOARD)
    _, first, _, last = play(environment, start, "x", "L D D R", "x", "R")
    assert first.rewards["actor"].local == pytest.approx(4 / 5)
    assert (first.rewards["actor"].team, first.done) == (0, False)
    assert last.rewards["actor"].local == pytest.approx(1 / 5)
    assert last.rewards["actor"].team == 1
    assert last.done and last.success and environment.acting(last.state) == ()
    assert environment.potential(last.state) - environment.potential(start) == 1


def test_by_a_code_book_a_message_is_worth_what_playing_it_would_be():
    environment = env(code_book=True)
    start = environment.reset(BOARD)
    for message, progress in (("L D", 2 / 5), ("R", 0), ("left down U", 1 / 5), ("L D D R R", 0.8)):
        (said,) = play(environment, start, message)
        assert said.rewards["scout"].shaping == pytest.approx(progress)
        assert (said.rewards["scout"].local, said.rewards["scout"].team) == (0, 0)
        assert said.state.board == start.board and said.outcome.judged


def test_by_a_code_book_a_question_is_worth_the_reply_to_it():
    """From (0, 1), where the actor is, the reply L D D R; from (2, 0) R R, which leads nowhere."""
    environment = env(code_book=True, asks=True)
    start = environment.reset(BOARD)
    for question, progress in (("0,1", 4 / 5), ("row 0 1", 0), ("2,0", 0), ("1,1", 0)):
        (asked,) = play(environment, start, question)
        if question == "row 0 1":  # two words arrive, and they name no cell
            assert asked.malformed == ("actor",)
        assert asked.rewards["actor"].shaping == pytest.approx(progress)
        assert environment.acting(asked.state) == ("scout",)
    assert play(environment, start, "3,0")[0].malformed == ("actor",)
    assert "It says: 0,1" in told(environment, play(environment, start, "0,1")[0].state, "scout")


@pytest.mark.parametrize("prompts", ["chat", "compact"])
def test_scouts_that_must_be_asked_do_not_see_the_actor(prompts):
    environment = env(asks=True, prompts=prompts)
    grid = BOARD.data["grid"]
    starts = [Task(str(s), {"grid": grid, "start": s, "goal": (2, 2)}) for s in ((0, 0), (1, 0))]
    states = [play(environment, environment.reset(task), "hello")[0].state for task in starts]
    assert told(environment, states[0], "scout") == told(environment, states[1], "scout")
    seeing = env(prompts=prompts)
    views = {told(seeing, seeing.reset(task), "scout") for task in starts}
    assert len(views) == 2


def test_scouts_see_parts_that_make_up_the_board():
    environment = env(scouts=2)
    grid = environment.reset(BOARD).board.grid
    assert environment.part(grid, "scout_1") == ("..#", ".#.", "???")
    assert environment.part(grid, "scout_2") == ("???", "???", "...")
    start = environment.reset(BOARD)
    assert environment.acting(start) == ("scout_1", "scout_2")
    assert "The goal (G)" not in told(environment, start, "scout_1")
    assert "The goal (G) is at row 2, column 2" in told(environment, start, "scout_2")
    after = asyncio.run(environment.transition(start, {"scout_1": "left", "scout_2": ""})).state
    assert "scout_1 says: left" in told(environment, after, "actor")
    assert "scout_2 said nothing that could be heard" in told(environment, after, "actor")


@pytest.mark.parametrize(
    ("answer", "words", "arrives"),
    [
        ("a b", "ab", ("a", "b")),
        ("I think.\nMessage: b a a b", "ab", ("b", "a", "a")),
        ("<think>Message: a</think> b", "ab", ("b",)),
        ("c", "ab", None),
        ("a b b b b", "ab", ("a", "b", "b")),
        ("", "ab", None),
        ("go left, friend!", None, ("go", "left,", "friend!")),
        ("\x00 \ud800", None, None),
        ("é" * 50, None, ("é" * LETTERS,)),
    ],
)
def test_what_arrives_of_an_answer(answer, words, arrives):
    assert Channel(words and list(words), 3).carried(answer) == arrives


def test_cells_are_named_by_two_numbers():
    assert named_cell(("2,3",)) == named_cell(("row2", "column3")) == (2, 3)
    assert named_cell(("2",)) is named_cell(("1,2,3",)) is named_cell(("there",)) is None


@pytest.mark.parametrize("code_book", [False, True])
def test_a_malformed_answer_changes_nothing_and_earns_nothing(code_book):
    environment = env(code_book=code_book, words=["U", "D", "L", "R"])
    said, moved = play(environment, environment.reset(BOARD), "V", "somewhere")
    assert (said.malformed, moved.malformed) == (("scout",), ("actor",))
    assert said.state.messages == ((),)
    assert moved.state == environment.reset(BOARD) and not moved.done
    assert moved.rewards["actor"].local == said.rewards["scout"].shaping == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scouts": 0, "asks": True}, "scouts: got 0"),
        ({"scouts": 0, "code_book": True}, "scouts: got 0"),
        ({"scouts": 4}, "scouts: got 4, allowed with size 3: 3 or fewer"),
        ({"code_book": True, "words": ["U", "x"]}, "allowed with code_book: U, D, L, R"),
        ({"words": ["a"]}, "two or more different words"),
        ({"words": ["a", "b c"]}, "two or more different words"),
        ({"prompts": "nowhere"}, "no prompt for role 'scout'"),
    ],
)
def test_options_that_do_not_go_together_are_told(settings, message):
    with pytest.raises(ConfigError, match=message):
        env(**settings)


def test_impossible_boards_are_refused():
    data = {"grid": [".#", "#."], "start": (0, 0), "goal": (1, 1)}
    with pytest.raises(ValueError, match="task bad: no path"):
        env().reset(Task("bad", data))


def test_tasks_follow_from_their_seed_and_are_as_near_as_asked(monkeypatch):
    environment = Relay(size=5, max_distance=3)
    tasks = [environment.task(seed) for seed in range(100)]
    assert environment.task(7) == tasks[7]
    ways = [distances(tuple(t.data["grid"]), t.data["goal"])[t.data["start"]] for t in tasks]
    assert set(ways) == {1, 2, 3}
    monkeypatch.setattr("teamtune.envs.relay.environment._ATTEMPTS", 1)
    with pytest.raises(ConfigError, match="max_distance: got 1, which 1 boards in a row exceed"):
        Relay(size=20, obstacle_probability=0.0, max_distance=1).task(0)


def row(cells, start, goal):
    return Task("row", {"grid": ["." * cells], "start": (0, start), "goal": (0, goal)})


@pytest.mark.parametrize(
    ("task", "max_distance", "moves", "rounds", "ceiling"),
    [
        (row(3, 1, 0), None, 1, 1, 1 / 2),  # one of two cells
        (row(3, 1, 0), None, 2, 1, 1 / 2),  # back again enters no other
        (row(3, 1, 0), None, 3, 1, 1),
        (row(3, 1, 2), None, 1, 3, 1),  # three lists of one move
        (row(5, 0, 1), 2, 1, 1, 1 / 2),  # the goal is at most two away
        (BOARD, None, 4, 1, 4 / 6),  # seven free cells in a row, from the first
    ],
)
def test_without_a_word_a_hidden_goal_is_found_by_walking_over_it(
    task, max_distance, moves, rounds, ceiling
):
    environment = env(max_distance=max_distance, max_moves=moves)
    assert single_agent_ceiling(environment, [task], rounds) == pytest.approx(ceiling)


def test_the_best_walk_is_the_best_of_all_walks():
    environment = Relay(size=4, max_moves=5, max_distance=6)
    for seed in range(15):
        board = environment.reset(task := environment.task(seed)).board
        goals = [c for c, d in distances(board.grid, board.start).items() if 0 < d <= 6]
        best = 0
        for moves in itertools.product("UDLR", repeat=5):
            ends = {walk(board.grid, board.start, (-1, -1), moves[:n]) for n in range(6)}
            best = max(best, len(ends & set(goals)))
        found = single_agent_ceiling(environment, [task], 1)
        assert found == pytest.approx(best / len(goals))


CORNERS = Task("corners", {"grid": ["..", ".."], "start": (0, 0), "goal": (1, 1)})
"""Two ways of two moves. Both cells between are free with (1 - p)^2 / 12, the first alone with
(1 - p) p / 6, as often as the second: the pair is one of 4 x 3, or of 3 x 2, of the free cells. For
p = 1 / 2 that is 1 : 2 : 2, and a list finds its way on 3 / 5 of the boards."""


def test_with_a_known_goal_the_way_is_guessed():
    settings = {"size": 2, "obstacle_probability": 0.5, "goal": "known", "max_moves": 2}
    blind = Relay(**settings, sight=0)
    assert single_agent_ceiling(blind, [CORNERS], 1) == pytest.approx(3 / 5)
    assert single_agent_ceiling(blind, [CORNERS], 2) == 1
    assert single_agent_ceiling(Relay(**settings, sight=1), [CORNERS], 1) == 1
    tasks = [blind.task(seed) for seed in range(3000)]
    drawn = [t for t in tasks if (t.data["start"], t.data["goal"]) == ((0, 0), (1, 1))]
    open_ = sum(is_free(tuple(t.data["grid"]), (0, 1)) for t in drawn) / len(drawn)
    assert len(drawn) > 100 and abs(open_ - 3 / 5) < 0.12


def test_the_best_list_is_the_best_of_all_lists_on_all_boards_that_look_the_same():
    p, start, goal = 0.4, (0, 0), (2, 2)
    environment = Relay(3, p, 4, 4, 1, "known")
    seen = {(0, 1): ".", (1, 0): ".", (1, 1): "#"}
    worlds = []
    for marks in itertools.product(".#", repeat=4):
        cells = dict(zip([(0, 2), (1, 2), (2, 0), (2, 1)], marks)) | seen
        grid = tuple("".join(cells.get((r, c), ".") for c in range(3)) for r in range(3))
        free = sum(line.count(".") for line in grid)
        blocked = marks.count("#")
        if distances(grid, goal).get(start, 9) <= 4:
            worlds.append((grid, p**blocked * (1 - p) ** (4 - blocked) / (free * (free - 1))))
    best = max(
        sum(w for grid, w in worlds if walk(grid, start, goal, moves) == goal)
        for moves in itertools.product("UDLR", repeat=4)
    )
    task = Task("one", {"grid": list(worlds[0][0]), "start": start, "goal": goal})
    expected = best / sum(w for _, w in worlds)
    assert 0.5 < expected < 1
    assert single_agent_ceiling(environment, [task], 1) == pytest.approx(expected)


def test_what_is_too_large_to_search_is_told():
    environment = Relay(size=6, goal="known")
    with pytest.raises(ValueError, match="cells are out of sight, at most 20 can be searched"):
        single_agent_ceiling(environment, [environment.task(0)], 1)


def test_an_untrained_team_walks_at_random():
    one = row(2, 0, 1)
    assert random_success(env(max_moves=1), [one], 1) == pytest.approx(1 / 4)
    assert random_success(env(max_moves=3), [one], 1) == pytest.approx(1 / 4)  # U ends a list
    assert random_success(env(max_moves=1), [one], 2) == pytest.approx(7 / 16)
    environment = env(max_moves=5)
    lists = list(itertools.product("UDLR", repeat=5))
    for task in (BOARD, environment.task(3), environment.task(4)):
        board = environment.reset(task).board
        hits = sum(walk(board.grid, board.start, board.goal, m) == board.goal for m in lists)
        assert random_success(environment, [task], 1) == pytest.approx(hits / len(lists))


@pytest.mark.parametrize("goal", ["known", "hidden"])
def test_what_talking_adds_has_room(goal):
    environment = Relay(size=4, max_distance=4, goal=goal)
    tasks = [environment.task(seed) for seed in range(20)]
    assert 0 < random_success(environment, tasks, 1) < single_agent_ceiling(environment, tasks, 1)
    for compute in (random_success, single_agent_ceiling):
        with pytest.raises(ValueError, match="needs at least one task"):
            compute(environment, [], 1)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_a_babbler_is_well_formed_and_knows_nothing(variant):
    environment, rng = env(**variant), random.Random(0)
    state = environment.reset(BOARD)
    for _ in range(6):
        acting = environment.acting(state)
        if not acting:
            break
        answers = {a: Babbler().answer(environment, state, a, rng) for a in acting}
        step = asyncio.run(environment.transition(state, answers))
        assert step.malformed == ()
        state = step.state


def test_a_babbler_can_do_what_it_hears():
    environment = env(code_book=True)
    state = play(environment, environment.reset(BOARD), "L D D R")[0].state
    assert Babbler(1.0).answer(environment, state, "actor", random.Random(0)) == "L D D R"
    lists = {Babbler().answer(environment, state, "actor", random.Random(s)) for s in range(50)}
    assert len(lists) > 20 and {moves[0] for moves in lists} == {"L"}


def test_sure_words_begin_a_shortest_way():
    environment = Relay(size=4, code_book=True)
    for seed in range(20):
        state = environment.reset(environment.task(seed))
        way = shortest_way(state.board.grid, state.board.cell, state.board.goal)
        said = Babbler(sure_words=2).answer(environment, state, "scout", random.Random(seed))
        assert len(said.split()) == 4
        assert said.split()[:2] == list(way[:2]) or len(way) < 2
    for blind in (Relay(scouts=2), Relay(asks=True), Relay(words=["one", "two"])):
        state = blind.reset(blind.task(0))
        with pytest.raises(ConfigError, match="sure_words: got 1, allowed: 0"):
            Babbler(sure_words=1)._way(blind, state)
