"""The rollout callback refuses what cannot be learned from: turns that do not fit, failures."""

from types import SimpleNamespace
from typing import Any

import pytest

from teamtune.algorithms import ATGRPO, MAGRPO
from teamtune.callbacks import RolloutCallback
from teamtune.callbacks.failures import refuse_failures, refuse_too_long
from teamtune.envs import Code, PlanPath
from teamtune.envs.relay import Relay
from teamtune.envs.writing import TLDR
from teamtune.errors import ConfigError
from teamtune.inference import Sampling


def check(env: Any, max_turns: int, evaluation_turns: int | None = None) -> None:
    callback = RolloutCallback(lambda *_: None, Sampling(), evaluation_turns=evaluation_turns)  # type: ignore[arg-type,return-value]
    callback.check_turns(SimpleNamespace(algorithm=MAGRPO(max_turns=max_turns)), env)  # type: ignore[arg-type]


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


@pytest.mark.parametrize("workflow", ["sequential", "discussion"])
def test_steps_that_later_ones_are_rewarded_for_need_a_return(workflow):
    for gamma in (0.5, 1.0):
        MAGRPO(gamma=gamma).check(TLDR(workflow))
    with pytest.raises(ConfigError, match="gamma: got 0, allowed: more than 0"):
        MAGRPO(0, max_turns=2, branching="chain").check(TLDR(workflow))
    MAGRPO(0).check(TLDR("parallel"))


@pytest.mark.parametrize("workflow", ["sequential", "discussion"])
def test_a_branch_that_ends_early_keeps_its_rewards_at_no_discount(workflow):
    ending = MAGRPO(0.9, max_turns=2, termination_threshold=3.0)
    with pytest.raises(ConfigError, match="gamma: got 0.9, allowed with termination_threshold.*1"):
        ending.check(TLDR(workflow))
    ending.check(TLDR("parallel"))
    MAGRPO(1.0, max_turns=2, termination_threshold=3.0).check(TLDR(workflow))


@pytest.mark.parametrize("workflow", ["sequential", "discussion"])
def test_a_comparison_within_a_step_needs_a_reward_in_it(workflow):
    with pytest.raises(ConfigError, match="ATGRPO compares the rewards of one step.*take MAGRPO"):
        ATGRPO().check(TLDR(workflow))
    ATGRPO().check(TLDR("parallel"))
    with pytest.raises(ConfigError, match="has steps that only later ones reward; take MAGRPO"):
        ATGRPO().check(Relay(prompts="compact"))
    ATGRPO().check(Relay(prompts="compact", code_book=True))
    ATGRPO().check(Relay(prompts="compact", scouts=0))


def test_an_evaluation_in_which_too_much_failed_is_refused():
    refuse_failures(0.5, 0.5, {"it broke"})
    with pytest.raises(RuntimeError, match="51% of the candidates failed.*50%: a; b; c$"):
        refuse_failures(0.51, 0.5, {"d", "c", "b", "a"})
    refuse_too_long(0.99)
    with pytest.raises(RuntimeError, match="no task could be evaluated"):
        refuse_too_long(1)


def test_an_episode_of_revisions_needs_all_its_turns():
    check(Code(turns=3), 3)
    with pytest.raises(ConfigError, match=r"max_turns: got 4, allowed: 3,"):
        check(Code(turns=3), 4)
