"""Code: rewards by hand, turn by turn; what agents see; programs and tests of every bad kind."""

import asyncio

import pytest

from teamtune.envs import Reward, check_env
from teamtune.envs.code import Code
from teamtune.errors import ConfigError
from teamtune.sandbox import Sandbox
from teamtune.tasks import Task

TESTS = [
    {"input": "1 2\n", "output": "3\n"},
    {"input": "5 -5\n", "output": "0\n"},
    {"input": "0 8\n", "output": "8\n"},
    {"input": "70 7\n", "output": "77\n"},
]
RIGHT = "a, b = map(int, input().split())\nprint(a + b)"
HALF = "a, b = map(int, input().split())\nprint(max(a, b) if a < 5 else 0)"
"""Right on the second and third test."""
ADD = Task("add", {"question": "Add two numbers.", "tests": TESTS, "reference": RIGHT})
UNKNOWN = Task("add-2", {"question": "Add two numbers.", "tests": TESTS})
DOUBLE = Task(
    "double",
    {
        "question": "Twice every item.",
        "tests": [
            {"input": "[1, 2]", "output": "[2, 4]"},
            {"input": "[]", "output": "[]"},
            {"input": "[0.5]", "output": ["[1.0]", "[1]"]},
        ],
        "function": "double",
        "reference": "def double(items):\n    return [2 * item for item in items]",
    },
)


@pytest.fixture(scope="module")
def sandbox():
    sandbox = Sandbox(workers=1, timeout=30.0)
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="module")
def env(sandbox):
    return Code(sandbox=sandbox)


def fenced(program):
    return f"```python\n{program}\n```"


def test_block(given, right):
    return f"My test:\n```input\n{given}\n```\n```output\n{right}\n```"


GOOD, BAD = test_block("2 2", "4"), test_block("2 2", "5")
test_block.__test__ = False


def play(env, state, coder, tester):
    return asyncio.run(env.transition(state, {"coder": coder, "tester": tester}))


def first(env, coder, tester=GOOD, task=ADD):
    return play(env, env.reset(task), coder, tester)


def approx(local=0.0, team=0.0, shaping=0.0):
    return Reward(pytest.approx(local), pytest.approx(team), pytest.approx(shaping))


@pytest.mark.parametrize("task", [ADD, UNKNOWN, DOUBLE], ids=lambda task: task.id)
def test_the_contract_holds(env, task):
    check_env(env, [task], max_states=5)


def test_the_contract_holds_for_a_coder_alone(sandbox):
    check_env(Code(roles=("coder",), turns=2, sandbox=sandbox), [ADD, DOUBLE], max_states=5)


@pytest.mark.parametrize(
    ("program", "local", "team"),
    [
        (RIGHT, 1.0, 1.0),
        (HALF, 0.1 + 0.1 + 0.8 * 0.5, 0.5),
        ("print(0)", 0.1 + 0.1 + 0.8 * 0.25, 0.25),
        ("print(3)\nraise SystemExit(1)", 0.1, 0.0),
        ("print(undefined)", 0.1, 0.0),
        ("if input() == '1 2':\n    boom()\nprint(0)", 0.1 + 0.8 * 0.25, 0.25),
        ("print(", 0.0, 0.0),
        ("", 0.0, 0.0),
        ("pass", 0.1 + 0.1, 0.0),  # prints nothing
        ("print('0' * 3_000_000)", 0.1, 0.0),  # prints too much
        ("import os\nos._exit(0)", 0.1, 0.0),
    ],
)
def test_the_coders_reward(env, program, local, team):
    step = first(env, fenced(program))
    assert step.rewards["coder"] == approx(local, team)
    assert step.rewards["tester"] == approx(team=team, shaping=1.0)
    assert env.potential(step.state) == pytest.approx(team)


@pytest.mark.parametrize(
    ("answer", "shaping", "malformed"),
    [
        (GOOD, 0.2 + 0.8, False),
        (BAD, 0.2, False),
        (test_block("two and two", "4"), 0.2, False),  # on which the reference raises
        ("The input is 2 2, the output 4.", 0.0, True),
        ("```input\n2 2\n```", 0.0, True),
        (test_block("2 2", ""), 0.0, True),
        ("", 0.0, True),
        ("<think>" + GOOD, 0.0, True),
        (f"<think>{BAD}</think>{GOOD}", 1.0, False),
    ],
)
def test_the_testers_reward(env, answer, shaping, malformed):
    step = first(env, fenced(HALF), answer)
    assert step.rewards["tester"] == approx(team=0.5, shaping=shaping)
    assert step.malformed == (("tester",) if malformed else ())


def test_without_a_reference_a_tester_has_the_teams_reward_alone(env):
    assert first(env, fenced(HALF), GOOD, UNKNOWN).rewards["tester"] == approx(team=0.5)


def test_rewards_are_changes_so_that_nothing_is_paid_twice(env):
    """Half right, half right again, all right: 0.6, 0, 0.4 of the coder's own, 0.5, 0, 0.5."""
    state, rewards = env.reset(ADD), []
    for program in (HALF, HALF, RIGHT):
        step = play(env, state, fenced(program), BAD)
        rewards.append(step.rewards["coder"])
        state = step.state
    assert rewards == [approx(0.6, 0.5), approx(), approx(0.4, 0.5)]


def test_a_worse_program_takes_back_what_the_one_before_earned(env):
    half = first(env, fenced(HALF), BAD).state
    assert play(env, half, "I give up.", BAD).rewards["coder"] == approx(-0.6, -0.5)


def test_it_ends_where_the_program_passes_the_test_or_after_the_last_turn(env):
    agreed = first(env, fenced(RIGHT), GOOD)
    assert agreed.done and agreed.success
    wrong_but_agreed = first(env, fenced(HALF), test_block("1 1", "1"))
    assert wrong_but_agreed.done and not wrong_but_agreed.success
    state = env.reset(ADD)
    for turn in range(4):
        step = play(env, state, fenced(RIGHT), BAD)
        assert step.outcome.solved
        assert step.done == step.success == (turn == 3)
        state = step.state


def test_from_the_second_turn_on_both_see_where_they_differ_and_nothing_golden(env):
    state = first(env, fenced(HALF), test_block("40 1", "41")).state
    for agent in env.agents:
        before = "\n".join(m["content"] for m in env.observe(env.reset(ADD), agent))
        after = "\n".join(m["content"] for m in env.observe(state, agent))
        assert "40 1" not in before
        assert "40 1\nand expects\n41\n" in after and " gave\n0\n" in after
        assert not any(golden["input"].strip() in before + after for golden in TESTS)
    assert "max(a, b)" in env.observe(state, "coder")[1]["content"]


def test_what_agents_are_shown_is_cut(env):
    state = first(env, fenced("print('ab' * 5000)"), test_block("1 " * 3000, "2")).state
    assert len(env.observe(state, "tester")[1]["content"]) < 4000


def test_texts_of_others_are_no_templates(env):
    state = first(env, fenced("print('{{ question }} {% raw %}')"), GOOD).state
    assert "{{ question }} {% raw %}" in env.observe(state, "tester")[1]["content"]


@pytest.mark.parametrize(
    ("program", "share"),
    [
        ("def double(items):\n    return [2 * item for item in items]", 1.0),
        ("def double(items):\n    return tuple(item + item for item in items)", 1.0),
        ("from __future__ import annotations\ndef double(items: List[int]):\n"
         "    print('debug')\n    return [item * 2.0000000001 for item in items]", 1.0),
        ("def double(items):\n    return []", 1 / 3),
        ("def double(items):\n    return {1}", 0.0),  # no JSON
        ("def double(items):\n    return None", 0.0),
        ("def other(items):\n    return []", 0.0),
        ("class Any(list):\n    def __eq__(self, other):\n        return True\n"
         "def double(items):\n    return Any()", 1 / 3),
        ("def double(items):\n    return []\nif __name__ == '__main__':\n    input()", 1 / 3),
    ],
)  # fmt: skip
def test_functions_are_judged_by_what_they_return(env, program, share):
    step = first(env, fenced(program), test_block("[3]", "[6]"), DOUBLE)
    assert step.rewards["coder"].team == pytest.approx(share)


@pytest.mark.parametrize(
    ("given", "right", "shaping"),
    [
        ("[3]", "[6]", 1.0),
        ("(3, 4)", "(6, 8)", 1.0),  # as Python has them
        ("[True]", "[2]", 1.0),
        ("[3]", "[7]", 0.2),
        ("[3]\n[4]", "[6]", 0.2),  # an argument too many
        ("three", "six", 0.0),
        ("{1, 2}", "[6]", 0.0),
        ("[" * 5000, "[6]", 0.0),
    ],
)
def test_tests_of_functions_hold_values(env, given, right, shaping):
    step = first(env, fenced("print(1)"), test_block(given, right), DOUBLE)
    assert step.rewards["tester"].shaping == pytest.approx(shaping)


def test_a_method_of_solution_is_called(env):
    row = {
        "question_content": "Add.",
        "starter_code": "class Solution:\n    def add(self, a: int, b: int) -> int:\n        ",
        "metadata": '{"func_name": "add"}',
        "public_test_cases": '[{"input": "1\\n2", "output": "3", "testtype": "functional"}]',
        "private_test_cases": "[]",
    }
    program = "class Solution:\n    def add(self, a: int, b: Optional[int]):\n        return a + b"
    step = first(env, fenced(program), test_block("2\n2", "4"), Task("m", row))
    assert step.done and step.success


def test_a_slow_program_is_not_run_again_and_again():
    sandbox = Sandbox(workers=1, timeout=0.3)
    tests = [TESTS[0], *[{"input": "slow", "output": "1"}] * 40]
    task = Task("slow", {"question": "?", "tests": tests})
    program = "words = input()\nwhile words == 'slow':\n    pass\nprint(3)"
    step = first(Code(sandbox=sandbox), fenced(program), BAD, task)
    sandbox.close()
    assert step.rewards["coder"] == approx(0.1 + 0.1 + 0.8 / 41, 1 / 41)


def test_without_a_coder_there_is_no_program():
    for roles in (("tester",), ()):
        with pytest.raises(ConfigError, match="allowed: \\[coder, tester\\] or \\[coder\\]"):
            Code(roles=roles)
    with pytest.raises(ConfigError, match="each once"):
        Code(roles=("coder", "coder"))


def test_a_task_without_tests_is_refused(env):
    with pytest.raises(ValueError, match=r"task t: tests: got none"):
        env.reset(Task("t", {"question": "?", "tests": []}))
