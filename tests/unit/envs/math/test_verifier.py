"""The verifier: answers written differently, answers that hang it, processes that break."""

import asyncio
import os
import pickle
import signal

import pytest

from teamtune.envs import judges
from teamtune.envs.judges import JudgeFailed
from teamtune.envs.math import Verifier
from teamtune.errors import ConfigError


@pytest.fixture(scope="module")
def verifier():
    verifier = Verifier(timeout=30.0, workers=1)
    yield verifier
    verifier.close()


@pytest.mark.parametrize(
    ("gold", "answer", "verdict"),
    [
        ("\\frac{1}{2}", "0.5", "equal"),
        ("$\\frac12$", "1/2", "equal"),
        ("0.5", "2/4", "equal"),
        ("204", "204.0", "equal"),
        ("025", "25", "equal"),
        ("0.001", "1e-3", "equal"),
        ("1,000", "1000", "equal"),
        ("2\\sqrt{3}", "\\sqrt{12}", "equal"),
        ("\\sqrt{2}", "1.4142136", "equal"),
        ("\\sqrt{2}", "1.41421", "different"),
        ("\\frac{1}{3}", "0.3333333", "equal"),
        ("\\frac{1}{3}", "0.33333", "different"),
        ("x+1", "1+x", "equal"),
        ("3", "x=3", "equal"),
        ("(1,2)", "(1, 2)", "equal"),
        ("(1,2)", "(2,1)", "different"),
        ("\\{1, 2\\}", "\\{2, 1\\}", "equal"),
        ("1, 2", "2, 1", "equal"),
        ("1000000", "1000001", "different"),
        ("5", "0.5", "different"),
        ("2", "((((", "unreadable"),
        ("2", "2} and {3", "unreadable"),
        ("2", "\ud800", "unreadable"),
        ("2", "2" * 2000, "unreadable"),
        ("2", "", "unreadable"),
        ("((((", "2", "unreadable"),
        ("1/0", "1", "different"),
    ],
)
def test_how_answers_compare(verifier, gold, answer, verdict):
    assert verifier.compare_sync(gold, answer) == verdict


def test_plain_numbers_need_no_process(monkeypatch):
    monkeypatch.setattr(judges, "_Judge", None)
    verifier = Verifier(workers=1)
    assert verifier.compare_sync("7", "7.0000009") == "equal"
    assert verifier.compare_sync("7", "7.000002") == "different"
    assert asyncio.run(verifier.compare("3/4", "0.75")) == "equal"


@pytest.mark.parametrize("tower", ["9^{9^{9^{9^9}}}", "10000000000!", "(" * 400])
def test_what_hangs_is_ended_in_its_time_and_the_next_question_is_answered(tower):
    verifier = Verifier(timeout=2.0, workers=1)
    assert verifier.compare_sync("\\frac{1}{2}", tower) == "too slow"
    assert verifier.compare_sync("\\frac{1}{2}", "\\frac{2}{4}") == "equal"
    verifier.close()


def test_several_loops_and_threads_share_it(verifier):
    async def several():
        pairs = [("\\sqrt{4}", str(n)) for n in range(4)]
        return await asyncio.gather(*(verifier.compare(*pair) for pair in pairs))

    for _ in range(2):
        assert asyncio.run(several()) == ["different", "different", "equal", "different"]


def test_a_process_that_was_killed_is_replaced():
    verifier = Verifier(timeout=30.0, workers=1)
    assert verifier.compare_sync("\\sqrt{4}", "2") == "equal"
    (judge,) = verifier.judges._pool._alive
    os.kill(judge._process.pid, signal.SIGKILL)
    assert verifier.compare_sync("\\sqrt{4}", "2") == "equal"
    verifier.close()


def test_a_process_that_does_not_start_is_no_wrong_answer(monkeypatch):
    monkeypatch.setattr("teamtune.envs.math.verifier._SCRIPT", "/nowhere/judge.py")
    with pytest.raises(JudgeFailed, match="does not start: .*nowhere"):
        Verifier(workers=1).compare_sync("\\sqrt{4}", "2")


def test_without_math_verify_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr("teamtune.envs.math.verifier.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install"):
        Verifier().check()


def test_it_can_be_copied_to_another_process(verifier):
    copy = pickle.loads(pickle.dumps(verifier))
    assert copy.timeout == verifier.timeout and copy.judges._pool is None
