"""The rollout callback refuses turns that do not fit the environment's episodes."""

from types import SimpleNamespace
from typing import Any

import pytest

from teamtune.algorithms import MAGRPO
from teamtune.callbacks import RolloutCallback
from teamtune.envs import PlanPath
from teamtune.envs.writing import TLDR
from teamtune.errors import ConfigError
from teamtune.inference import Sampling


def check(env: Any, max_turns: int, evaluation_turns: int | None = None) -> None:
    callback = RolloutCallback(lambda *_: None, Sampling(), evaluation_turns)  # type: ignore[arg-type,return-value]
    callback._check_turns(SimpleNamespace(algorithm=MAGRPO(max_turns=max_turns)), env)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("workflow", "needed"), [("parallel", 1), ("single", 1), ("sequential", 1), ("discussion", 2)]
)
def test_a_joint_answer_needs_as_many_turns_as_its_workflow_has(workflow, needed):
    check(TLDR(workflow), needed)
    check(TLDR(workflow), needed, needed)
    for turns in {1, 2, 3} - {needed}:
        with pytest.raises(ConfigError, match=rf"max_turns: got {turns}, allowed: {needed},"):
            check(TLDR(workflow), turns)
        with pytest.raises(ConfigError, match=rf"evaluation_turns: got {turns}, allowed"):
            check(TLDR(workflow), needed, turns)


def test_games_have_no_fixed_number():
    check(PlanPath(), 3, 7)
