"""Doors: who sees the coin can only talk, and who opens sees nothing."""

import asyncio
import random

import pytest

from teamtune.envs import check_env
from teamtune.envs.doors import DOORS, WORDS, Anything, Doors, Yard
from teamtune.experience import Rollout
from teamtune.inference import ScriptedEngine
from teamtune.rollout import TrajectorySampler, collect
from teamtune.tasks import Task

TEAM = {"scout": "team", "opener": "team"}
CODE = dict(zip(("coin:1", "coin:2", "coin:3", "coin:4"), WORDS))


def played(coin: str, silent: bool) -> Rollout:
    """An episode of a team with a code, whose scout may keep quiet."""

    def answer(prompt: str, seed: int) -> str:
        if prompt.startswith("cat"):
            return "" if silent else CODE[prompt.split()[-1]]
        return str(WORDS.index(prompt) + 1) if prompt in WORDS else "1"

    task = Task("t", {"animals": ("cat", "hen"), "coin": coin})
    (rollout,) = collect(
        Doors(), [task], TrajectorySampler(), {"team": ScriptedEngine(answer)}, TEAM
    )
    return rollout


def test_doors_keep_the_contract():
    check_env(Doors(), [Doors().task(seed) for seed in range(5)])


@pytest.mark.parametrize("coin", DOORS)
def test_a_team_with_a_code_finds_every_coin(coin):
    assert (played(coin, silent=False).success, played(coin, silent=False).return_) == (True, 2.0)


@pytest.mark.parametrize("coin", DOORS)
def test_without_a_word_the_opener_can_only_guess(coin):
    assert played(coin, silent=True).success == (coin == "1")


def test_the_first_word_counts_and_anything_else_is_heard_as_a_question_mark():
    yard = Yard(("cat", "hen"), "2")
    for text, heard in (("ba ke", "ba"), ("cat", "?"), ("", "?")):
        step = asyncio.run(Doors().transition(yard, {"scout": text}))
        assert (step.state.heard, step.malformed) == (heard, ("scout",) if heard == "?" else ())


def test_the_demonstrator_knows_the_form_and_not_the_door():
    """Of 400 openings a quarter is right; 3 standard deviations are 6.5 points."""
    yard, rng = Yard(("cat", "hen"), "2", "ba"), random.Random(0)
    shown = [Anything().answer(Doors(), yard, "opener", rng) for _ in range(400)]
    assert set(shown) == set(DOORS)
    assert abs(shown.count("2") / 400 - 0.25) < 0.065
