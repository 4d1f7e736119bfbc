"""The sample problems of Code and Math: their references solve them, and no two are the same."""

import asyncio
from pathlib import Path

import pytest

from teamtune.envs import Code, Math
from teamtune.envs.code import CodeTasks
from teamtune.envs.math import MathTasks
from teamtune.experience import groups_of
from teamtune.inference import ScriptedEngine
from teamtune.rollout import TreeSampler, collect

CONFIGS = Path(__file__).parents[3] / "configs"


def sources(name, kind):
    return [kind(f"{CONFIGS}/{name}/data/{part}.jsonl") for part in ("train", "val")]


@pytest.mark.parametrize(("name", "kind", "env"), [("code", CodeTasks, Code()),
                                                   ("math", MathTasks, Math())])  # fmt: skip
def test_samples_can_be_played_and_none_is_in_both_parts(name, kind, env):
    train, val = sources(name, kind)
    for source in (train, val):
        source.check(env)
    assert train.overlap(val) is None


def test_the_references_of_the_code_samples_pass_all_tests():
    alone = Code(roles=("coder",), turns=1)
    for task in [task for source in sources("code", CodeTasks) for task in source.tasks]:
        program = f"```python\n{task.data['reference']}\n```"
        step = asyncio.run(alone.transition(alone.reset(task), {"coder": program}))
        assert step.success, task.id


def test_a_tree_compares_coders_and_testers_by_their_own_rewards():
    """Of two candidates each the right program and the true test go on, and they agree."""
    env, (train, _) = Code(), sources("code", CodeTasks)
    task = train.tasks[0]
    good = task.data["reference"]
    said = {
        True: iter(["```python\nprint(0)\n```", f"```python\n{good}\n```"]),
        False: iter(["none", "```input\n13\n```\n```output\n2 1\n```"]),
    }
    engine = ScriptedEngine(lambda prompt, _: next(said["one Python code block" in prompt]))
    policies = dict.fromkeys(env.agents, "team")
    (rollout,) = collect(env, [task], TreeSampler(num_candidates=2), {"team": engine}, policies)
    coder, tester = groups_of([rollout])
    assert rollout.success and rollout.return_ == 2.0
    assert [c.reward_local for c in coder.candidates] == pytest.approx([0.2, 1.0])
    assert [c.reward_local for c in tester.candidates] == pytest.approx([0.0, 1.0])
    assert [c.selected for c in tester.candidates] == [False, True]
