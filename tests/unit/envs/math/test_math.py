"""Math: rewards by hand, turn by turn; whose answer counts; what agents see."""

import asyncio

import pytest

from teamtune.envs import Reward, check_env
from teamtune.envs.math import Math, Verifier
from teamtune.errors import ConfigError
from teamtune.sandbox import Sandbox
from teamtune.tasks import Task

HALF = Task("half", {"problem": "What is 3/6?", "answer": "\\frac{1}{2}"})


@pytest.fixture(scope="module")
def env():
    env = Math(sandbox=Sandbox(workers=1, timeout=30.0), verifier=Verifier(30.0, workers=1))
    yield env
    env.sandbox.close()
    env.verifier.close()


def boxed(answer):
    return f"<think>\\boxed{{9}}</think>It is \\boxed{{{answer}}}."


def printing(value):
    return f"```python\nvalue = {value!r}\nprint('Result:')\nprint(value)\nprint()\n```"


def play(env, state, **answers):
    return asyncio.run(env.transition(state, answers))


def approx(local=0.0, team=0.0):
    return Reward(pytest.approx(local), pytest.approx(team), 0.0)


def test_the_contract_holds(env):
    check_env(env, [HALF], max_states=6)


@pytest.mark.parametrize("role", ["reasoner", "tool"])
def test_the_contract_holds_for_one_role_alone(env, role):
    sandbox = env.sandbox if role == "tool" else None
    alone = Math(roles=(role,), turns=2, sandbox=sandbox, verifier=env.verifier)
    check_env(alone, [HALF], max_states=6)


@pytest.mark.parametrize(
    ("answer", "local", "team"),
    [
        (boxed("0.5"), 0.2 + 0.8, 1.0),
        (boxed("1/2"), 0.2 + 0.8, 1.0),
        (boxed("\\dfrac{2}{4}"), 0.2 + 0.8, 1.0),
        (boxed("50\\%"), 0.2 + 0.8, 1.0),
        (boxed("0.5000009"), 0.2 + 0.8, 1.0),
        (boxed("0.500002"), 0.2, 0.0),
        (boxed("2"), 0.2, 0.0),
        ("\\boxed{2} or rather \\boxed{0.5}", 0.2 + 0.8, 1.0),
        ("It is 0.5.", 0.0, 0.0),
        ("\\boxed{0.5", 0.0, 0.0),
        ("\\boxed{}", 0.0, 0.0),
        ("<think>\\boxed{0.5}", 0.0, 0.0),
        ("", 0.0, 0.0),
    ],
)
def test_the_reasoners_reward_and_the_teams(env, answer, local, team):
    step = play(env, env.reset(HALF), reasoner=answer, tool=printing("7"))
    assert step.rewards == {"reasoner": approx(local, team), "tool": approx(0.2, team)}
    assert env.potential(step.state) == team
    assert step.malformed == (("reasoner",) if local == 0 else ())


@pytest.mark.parametrize(
    ("answer", "local", "malformed"),
    [
        (printing("0.5"), 0.1 + 0.1 + 0.8, False),
        ("```python\nfrom fractions import Fraction\nprint(Fraction(3, 6))\n```", 1.0, False),
        (printing("7"), 0.1 + 0.1, False),
        ("```python\nvalue = 0.5\n```", 0.1 + 0.1, True),  # prints nothing
        ("```python\nprint('1' * 3_000_000)\n```", 0.1, True),  # prints too much
        ("```python\nprint('1' * 3_000)\n```", 0.1 + 0.1, True),  # too long to be an answer
        (printing("(("), 0.1 + 0.1, True),
        (printing("7} or \\boxed{0.5"), 0.1 + 0.1, True),
        ("```python\nprint(0.5)\n1 / 0\n```", 0.1, True),
        ("```python\nprint(0.5\n```", 0.0, True),
        ("0.5", 0.0, True),
    ],
)
def test_the_tools_reward(env, answer, local, malformed):
    step = play(env, env.reset(HALF), reasoner=boxed("7"), tool=answer)
    assert step.rewards == {"reasoner": approx(0.2), "tool": approx(local)}
    assert step.malformed == (("tool",) if malformed else ())


def test_a_tower_of_powers_costs_its_time_and_is_malformed(env):
    quick = Math(sandbox=env.sandbox, verifier=Verifier(timeout=2.0, workers=1))
    state = quick.reset(Task("n", {"problem": "?", "answer": "7"}))
    step = play(quick, state, reasoner=boxed("9^{9^{9^{9^9}}}"), tool=printing("7"))
    assert step.rewards == {"reasoner": approx(0.2), "tool": approx(1.0)}
    assert step.malformed == ("reasoner",)
    quick.verifier.close()


def test_rewards_are_changes_so_that_nothing_is_paid_twice(env):
    state, rewards = env.reset(HALF), []
    for answer in ("7", "8", "0.5", "9"):
        step = play(env, state, reasoner=boxed(answer), tool=printing("3"))
        rewards.append(step.rewards["reasoner"])
        state = step.state
    assert rewards == [approx(0.2), approx(), approx(0.8, 1.0), approx(-0.8, -1.0)]
    assert step.done and not step.success


def test_it_ends_where_both_agree_right_or_wrong(env):
    for answer, success in (("0.5", True), ("7", False)):
        step = play(env, env.reset(HALF), reasoner=boxed(answer), tool=printing(answer))
        assert (step.done, step.success) == (True, success)
    step = play(env, env.reset(HALF), reasoner=boxed("0.5"), tool=printing("7"))
    assert step.outcome.solved and not step.done and not step.success


def test_a_tool_alone_answers_for_itself(env):
    alone = Math(roles=("tool",), turns=1, sandbox=env.sandbox, verifier=env.verifier)
    step = play(alone, alone.reset(HALF), tool=printing("0.5"))
    assert step.success and step.rewards == {"tool": approx(1.0, 1.0)}


def test_from_the_second_turn_on_both_see_both_answers_and_not_the_gold_one(env):
    task = Task("n", {"problem": "Which number?", "answer": "271"})
    start = env.reset(task)
    state = play(env, start, reasoner=boxed("314"), tool=printing("161")).state
    for agent in env.agents:
        before, after = (
            "\n".join(m["content"] for m in env.observe(s, agent)) for s in (start, state)
        )
        assert "Which number?" in before and "314" not in before and "161" not in before
        assert "314" in after and "161" in after and "271" not in before + after


def test_what_failed_is_told(env):
    failing = "```python\nprint(1 / 0)\n```"
    state = play(env, env.reset(HALF), reasoner="?", tool=failing).state
    for agent in env.agents:
        seen = env.observe(state, agent)[1]["content"]
        assert "There was no answer in a box." in seen
        assert "The program failed: line 1: ZeroDivisionError" in seen


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"answer": "5"}, "'problem' must be a text"),
        ({"problem": "?", "answer": 5}, "'answer' must be a text"),
        ({"problem": "?", "answer": " "}, "'answer' must be a text"),
        ({"problem": "?", "answer": "((("}, "'answer' is no mathematics that the verifier reads"),
    ],
)
def test_a_task_that_cannot_be_judged_is_refused(env, data, words):
    with pytest.raises(ValueError, match=words):
        env.reset(Task("t", data))


def test_a_sandbox_without_a_tool_is_refused():
    with pytest.raises(ConfigError, match="sandbox: allowed with roles"):
        Math(roles=("reasoner",), sandbox=Sandbox())
