"""What engines and environments do wrong becomes a reason with a place; nothing waits for ever."""

import asyncio

import pytest

from games import AGENTS, POLICIES, Game, numbering, won
from teamtune.envs import Reward
from teamtune.errors import ConfigError
from teamtune.inference import ScriptedEngine
from teamtune.rollout import TreeSampler, collect
from teamtune.tasks import Task


class Failing(ScriptedEngine):
    """Raises the first `times` times that it is asked."""

    def __init__(self, times: int, error: Exception):
        super().__init__(lambda prompt, seed: "1")
        self.times, self.error = times, error

    async def generate(self, *args, **kwargs):
        self.times -= 1
        if self.times >= 0:
            raise self.error
        return await super().generate(*args, **kwargs)


def roll(game, engine=None, **options):
    engines = {"a": engine or numbering(), "b": numbering()}
    return collect(game, [Task("t")], TreeSampler(2, 1), engines, POLICIES, **options)[0]


def test_an_engine_that_fails_once_is_asked_again():
    rollout = roll(Game(lambda said: 1.0), Failing(1, OSError("gone")))
    assert rollout.error is None and {c.status for c in rollout.candidates} == {"scored"}


def test_an_engine_that_fails_twice_fails_the_answers_and_says_why():
    rollout = roll(Game(lambda said: 1.0), Failing(2, OSError("gone")))
    left, right = rollout.groups
    assert all(c.status == "failed" for c in rollout.candidates)
    assert left.candidates[0].reason.startswith("OSError: gone (") and rollout.error
    assert right.candidates[0].reason == "an answer beside it is missing"


def test_a_setting_that_no_engine_can_work_with_ends_the_run():
    with pytest.raises(ConfigError, match="no"):
        roll(Game(lambda said: 1.0), Failing(1, ConfigError("no")))


def test_an_environment_that_never_answers_fails_those_candidates_alone():
    class Stuck(Game):
        async def transition(self, state, actions):
            if "1" in actions.values():
                await asyncio.sleep(100)
            return won((*state, "x"), 1.0)

    rollout = roll(Stuck(None), transition_timeout=0.05)
    for group in rollout.groups:
        assert [c.status for c in group.candidates] == ["scored", "failed"]
        reason = "TimeoutError: the environment gave no answer in 0.05 s"
        assert group.candidates[1].reason == reason


def test_an_exception_is_told_with_its_file_and_line():
    rollout = roll(Game(lambda said: 1 / 0))
    (why,) = {c.reason for c in rollout.candidates}
    assert why.startswith("ZeroDivisionError: division by zero (") and f"{__file__}:" in why


def test_where_one_task_ends_the_run_the_others_do_not_live_on_with_the_loop():
    class Picky(Game):
        def reset(self, task):
            if task.id == "bad":
                raise ConfigError("cannot start")
            return ()

        async def transition(self, state, actions):
            await asyncio.sleep(100)
            return won(("x",), 0.0, {agent: Reward() for agent in AGENTS})

    engines = {"a": numbering(), "b": numbering()}
    with asyncio.Runner() as runner:
        with pytest.raises(ConfigError, match="cannot start"):
            tasks = [Task("good"), Task("bad")]
            collect(Picky(None), tasks, TreeSampler(2, 1), engines, POLICIES, runner=runner)
        assert not asyncio.all_tasks(runner.get_loop())
