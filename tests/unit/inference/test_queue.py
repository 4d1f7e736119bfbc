"""Engines work on loops that last and on new ones, whatever was left behind."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from engines import ids, tiny_model
from teamtune.inference import Completion, Sampling, TransformersEngine

LONG = Sampling(max_tokens=100)


@pytest.fixture(autouse=True)
def python_answers_ctrl_c():
    """Whatever handler an earlier test of the process has left."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def engine(tmp_path) -> TransformersEngine:
    engine = TransformersEngine(str(tiny_model(tmp_path)), Sampling(max_tokens=8))
    engine.chat.stop_ids = frozenset()
    return engine


async def one(engine: TransformersEngine) -> list[Completion]:
    return await engine.generate([4, 5], 3, seed=7)


def test_new_loops_and_one_that_lasts_give_the_same(engine):
    expected = asyncio.run(one(engine))
    assert asyncio.run(one(engine)) == expected
    with asyncio.Runner() as runner:
        assert runner.run(one(engine)) == expected
        assert runner.run(one(engine)) == expected


async def fails_beside(engine: TransformersEngine) -> None:
    """One of two askers raises while the other still waits: gather leaves that one behind."""

    async def fail() -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        raise LookupError("an environment")

    await asyncio.gather(engine.generate([4], 2, LONG), fail())


async def interrupted(engine: TransformersEngine) -> None:
    """Ctrl-C while an answer is in the making."""
    task = asyncio.ensure_future(engine.generate([4], 2, LONG))
    while engine._batch is None:
        await asyncio.sleep(0)
    signal.raise_signal(signal.SIGINT)
    await task


async def interrupted_in_a_step(engine: TransformersEngine) -> None:
    """A second Ctrl-C is raised wherever the program is, here in the midst of a step."""
    decode = engine._decode

    def stop(batch: Any) -> Any:
        engine._decode = decode  # type: ignore[method-assign]
        raise KeyboardInterrupt

    engine._decode = stop  # type: ignore[method-assign]
    await engine.generate([4], 2, LONG)


async def broken(engine: TransformersEngine) -> None:
    decode = engine._decode

    def stop(batch: Any) -> Any:
        engine._decode = decode  # type: ignore[method-assign]
        raise FloatingPointError("nan")

    engine._decode = stop  # type: ignore[method-assign]
    await engine.generate([4], 2, LONG)


CASES = [
    (fails_beside, LookupError),
    (interrupted, KeyboardInterrupt),
    (interrupted_in_a_step, KeyboardInterrupt),
    (broken, FloatingPointError),
]


@pytest.mark.parametrize(("run", "error"), CASES)
@pytest.mark.parametrize("same_loop", [True, False])
def test_what_a_failure_left_behind_harms_nobody(
    engine, run: Callable[[TransformersEngine], Awaitable[None]], error, same_loop
):
    expected = asyncio.run(one(engine))
    with asyncio.Runner() as runner, asyncio.Runner() as other:
        with pytest.raises(error):
            runner.run(run(engine))
        engine.load_weights(engine.model.state_dict().items(), 1)  # between two rollouts
        assert engine._batch is None and not engine._waiting
        again = (runner if same_loop else other).run(one(engine))
        assert ids(again) == ids(expected)
        assert [c.logprobs for c in again] == [c.logprobs for c in expected]
        assert ids(runner.run(one(engine))) == ids(expected)


def test_who_is_left_behind_is_given_up(engine):
    left: list[asyncio.Task[Any]] = []

    async def leave() -> None:
        left.append(asyncio.ensure_future(engine.generate([4], 2, LONG)))
        while engine._batch is None:
            await asyncio.sleep(0)

    with asyncio.Runner() as runner:
        runner.run(leave())
        engine.load_weights(engine.model.state_dict().items(), 1)
        runner.run(asyncio.sleep(0.001))
        assert left[0].cancelled()


def test_a_loop_closed_under_its_requests_is_forgotten(engine):
    expected = asyncio.run(one(engine))
    loop = asyncio.new_event_loop()
    task = loop.create_task(engine.generate([4], 2, LONG))
    for _ in range(5):
        loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert asyncio.run(one(engine)) == expected
    assert not task.done()
