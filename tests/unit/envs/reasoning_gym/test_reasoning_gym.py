"""ReasoningGym: rewards by hand, for each team; which answer counts; what agents see."""

import asyncio

import pytest

from teamtune.envs import ReasoningGym, Reward, check_env
from teamtune.errors import ConfigError
from teamtune.sandbox import Sandbox
from teamtune.tasks import Task

TEAMS = {
    "single": ("solver",),
    "reasoner_tool": ("reasoner", "tool"),
    "solver_checker": ("solver", "checker"),
}
SUM = Task("sum", {"dataset": "gcd", "question": "gcd(24, 36)?", "answer": "12", "metadata": "{}"})
"""Its verifier gives 1 for 12, and for an answer that contains it a share of its length."""


@pytest.fixture(scope="module")
def envs():
    sandbox = Sandbox(workers=1, timeout=30.0)
    made = {
        team: ReasoningGym(
            "gcd",
            team=team,
            turns=3,
            workers=1,
            timeout=30.0,
            sandbox=sandbox if "tool" in roles else None,
        )
        for team, roles in TEAMS.items()
    }
    judges = made["single"].library.judges
    for env in made.values():
        env.library.judges = judges
    yield made
    judges.close()
    sandbox.close()


def tagged(answer):
    return f"<think><answer>9</answer></think>It is <answer>{answer}</answer>."


def printing(value):
    return f"```python\nvalue = {value!r}\nprint(value)\n```"


def play(env, state, **answers):
    return asyncio.run(env.transition(state, answers))


def approx(local=0.0, team=0.0):
    return Reward(pytest.approx(local), pytest.approx(team), 0.0)


@pytest.mark.parametrize("team", TEAMS)
def test_the_contract_holds(envs, team):
    env = envs[team]
    assert env.agents == TEAMS[team]
    check_env(env, [env.task(seed) for seed in range(2)], max_states=5)


@pytest.mark.parametrize(
    ("answer", "local", "team"),
    [
        (tagged("12"), 0.2 + 0.8, 1.0),
        (tagged(" 12\n"), 0.2 + 0.8, 1.0),
        ("<answer>7</answer> or rather\n<answer>12</answer>", 0.2 + 0.8, 1.0),
        ("It follows\nthat it is \\boxed{12}.", 0.2 + 0.8, 1.0),
        ("12", 0.2 + 0.8, 1.0),
        (tagged("12345678"), 0.2 + 0.8 * 2 / 8, 0.0),
        (tagged("7"), 0.2, 0.0),
        ("It follows\nthat it is 12", 0.0, 0.0),
        ("<answer>7</answer> <answer>12", 0.0, 0.0),
        ("<answer></answer>", 0.0, 0.0),
        ("<think><answer>12</answer>", 0.0, 0.0),
        ("", 0.0, 0.0),
    ],
)
def test_what_an_answer_earns(envs, answer, local, team):
    env = envs["single"]
    step = play(env, env.reset(SUM), solver=answer)
    assert step.rewards == {"solver": approx(local, team)}
    assert env.potential(step.state) == team
    assert step.outcome.solved == bool(team) and not step.done
    assert step.malformed == (("solver",) if local == 0 else ())


@pytest.mark.parametrize(
    ("answer", "local", "malformed"),
    [
        (printing("12"), 0.1 + 0.1 + 0.8, False),
        (printing("7"), 0.1 + 0.1, False),
        ("```python\nvalue = 12\n```", 0.1 + 0.1, True),  # prints nothing
        ("```python\nprint('1' * 50_000)\n```", 0.1 + 0.1, True),  # prints too much
        ("```python\nprint(12)\n1 / 0\n```", 0.1, True),
        ("```python\nprint(12\n```", 0.0, True),
        ("12", 0.0, True),
    ],
)
def test_what_a_program_earns(envs, answer, local, malformed):
    env = envs["reasoner_tool"]
    step = play(env, env.reset(SUM), reasoner=tagged("7"), tool=answer)
    assert step.rewards == {"reasoner": approx(0.2), "tool": approx(local)}
    assert step.malformed == (("tool",) if malformed else ())


def test_the_solvers_answer_is_the_teams_and_the_checker_is_paid_for_its_own(envs):
    env = envs["solver_checker"]
    step = play(env, env.reset(SUM), solver=tagged("7"), checker=tagged("12"))
    assert step.rewards == {"solver": approx(0.2), "checker": approx(1.0)}
    assert not step.outcome.solved
    step = play(env, step.state, solver=tagged("12"), checker=tagged("12"))
    assert step.rewards == {"solver": approx(0.8, 1.0), "checker": approx(0.0, 1.0)}
    assert step.done and step.success


def test_it_ends_where_both_agree_or_after_the_last_turn(envs):
    env = envs["solver_checker"]
    step = play(env, env.reset(SUM), solver=tagged("7"), checker=tagged("7 "))
    assert step.done and not step.success
    step = play(env, env.reset(SUM), solver="none\nat all", checker="nor\nhere")
    assert not step.done
    alone, state = envs["single"], envs["single"].reset(SUM)
    for last in (False, False, True):
        step = play(alone, state, solver=tagged("12"))
        assert (step.done, step.success) == (last, last)
        state = step.state


def test_from_the_second_turn_on_each_sees_what_the_other_said_and_not_the_gold_answer(envs):
    env = envs["solver_checker"]
    remark = "You forgot a factor.\n<answer>161</answer>"
    state = play(env, env.reset(SUM), solver=tagged("314"), checker=remark).state
    seen = {agent: env.observe(state, agent)[1]["content"] for agent in env.agents}
    assert "gcd(24, 36)?" in seen["solver"] and "gcd(24, 36)?" in seen["checker"]
    assert "314" in seen["solver"] and "You forgot a factor." in seen["solver"]
    assert "314" in seen["checker"] and "161" in seen["checker"]
    assert "12" not in "".join(seen.values())


def test_what_failed_is_told(envs):
    env = envs["reasoner_tool"]
    failing = "```python\nprint(1 / 0)\n```"
    state = play(env, env.reset(SUM), reasoner="well\n?", tool=failing).state
    for agent in env.agents:
        seen = env.observe(state, agent)[1]["content"]
        assert "There was no answer." in seen
        assert "The program failed: line 1: ZeroDivisionError" in seen


def test_an_answer_that_breaks_the_verifier_is_malformed_and_its_trouble_told(envs):
    env = ReasoningGym("prime_factorization", workers=1)
    env.library.judges = envs["single"].library.judges
    step = play(env, env.reset(env.task(0)), solver=tagged("no idea"))
    assert step.malformed == ("solver",) and step.rewards == {"solver": approx(0.2)}
    assert "It cannot be read: ValueError" in env.observe(step.state, "solver")[1]["content"]


def test_tasks_follow_from_their_seed_and_options_reach_the_generator(envs):
    env = envs["single"]
    assert env.task(3).data == env.task(3).data != env.task(4).data
    long = ReasoningGym("gcd", {"min_numbers": 5, "max_numbers": 5}, workers=1)
    long.library.judges = env.library.judges
    assert long.task(0).data["question"].count(", ") == 4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dataset": "lcm"}, "'dataset' must be 'gcd', got 'lcm'"),
        ({"question": " "}, "'question' must be a text"),
        ({"metadata": {}}, "'metadata' must be a text"),
        ({"answer": 12}, "'answer' must be a text, or null"),
    ],
)
def test_a_task_that_cannot_be_judged_is_refused(envs, change, words):
    with pytest.raises(ValueError, match=words):
        envs["single"].reset(Task("t", {**SUM.data, **change}))


def test_a_sandbox_without_a_tool_is_refused():
    with pytest.raises(ConfigError, match="sandbox: allowed with team single: null"):
        ReasoningGym("gcd", sandbox=Sandbox())


@pytest.mark.parametrize("team", TEAMS)
def test_in_few_words_each_is_told_the_problem_and_what_both_said(envs, team):
    env = ReasoningGym("gcd", team=team, prompts="compact", workers=1)
    env.library.judges = envs[team].library.judges
    start = env.reset(SUM)
    said = {agent: printing("33") if agent == "tool" else tagged("33") for agent in env.agents}
    said[env.agents[0]] = tagged("44")
    state = play(env, start, **said).state
    for agent in env.agents:
        before, after = (env.observe(s, agent)[0]["content"] for s in (start, state))
        assert before.startswith("gcd(24, 36)?") and "said" not in before
        assert after.count("said: ") == len(env.agents) and "said: 44" in after
        assert ("program" in before) == (agent == "tool")
        assert f"You said: {'44' if agent == env.agents[0] else '33'}" in after
