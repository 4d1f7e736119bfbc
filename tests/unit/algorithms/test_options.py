"""What an algorithm's options may be, as the command's parser sees it, the sampler's among them."""

import pytest
from jsonargparse import ArgumentError, ArgumentParser

from teamtune.algorithms import ATGRPO, GRPO, MAGRPO, GiGPO


def parse(algorithm: type, option: str) -> object:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(algorithm, "algorithm")
    return parser.parse_args([f"--algorithm.{option}"])


@pytest.mark.parametrize(
    ("algorithm", "good", "bad"),
    [
        (MAGRPO, "gamma=0", "gamma=1.5"),
        (MAGRPO, "gamma=1", "gamma=nan"),
        (MAGRPO, "clip=0.1", "clip=0"),
        (MAGRPO, "reduction=token_mean", "reduction=mean"),
        (MAGRPO, "scale=std", "scale=sd"),
        (MAGRPO, "pairing=cross", "pairing=zip"),
        (MAGRPO, "branching=chain", "branching=star"),
        (MAGRPO, "termination_threshold=2", "termination_threshold=nan"),
        (MAGRPO, "kl_coef=0", "kl_coef=-1"),
        (ATGRPO, "alpha=-1", "alpha=nan"),
        (ATGRPO, "select=softmax", "select=best"),
        (ATGRPO, "max_turns=1", "max_turns=0"),
        (ATGRPO, "baseline=max", "baseline=median"),
        (GRPO, "num_candidates=2", "num_candidates=0"),
        (GRPO, "baseline=leave_one_out", "baseline=max"),
        (GiGPO, "omega=0", "omega=-0.1"),
        (GiGPO, "clip_low=0.1", "clip_low=0"),
    ],
)
def test_options_out_of_range_are_refused(algorithm, good, bad):
    parse(algorithm, good)
    with pytest.raises(ArgumentError):
        parse(algorithm, bad)


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        (ATGRPO, {"num_candidates": 7, "max_turns": 3, "alpha": 0.3, "select": "random"}),
        (ATGRPO, {"select": "softmax", "select_temperature": 0.7}),
        (MAGRPO, {"num_candidates": 7, "max_turns": 3, "pairing": "cross"}),
        (MAGRPO, {"gamma": 0, "branching": "chain", "select": "random"}),
        (MAGRPO, {"max_turns": 2, "termination_threshold": 0.7}),
        (GRPO, {"num_candidates": 7, "max_turns": 3}),
        (GiGPO, {"num_candidates": 7, "max_turns": 3}),
    ],
)
def test_options_of_the_sampler_reach_it(algorithm, options):
    sampler = vars(algorithm(**options).sampler)
    assert {k: v for k, v in sampler.items() if k in options} == {
        k: v for k, v in options.items() if k != "gamma"
    }


def test_without_options_an_algorithm_is_as_its_paper_has_it():
    """AT-GRPO: 2510.11062, MAGRPO: 2508.04652, GRPO: 2402.03300, GiGPO: 2505.10978."""
    at, ma, grpo, gigpo = ATGRPO(), MAGRPO(), GRPO(), GiGPO()
    assert (at.sampler.num_candidates, at.sampler.max_turns, at.sampler.alpha) == (4, 4, 1)
    assert (at.sampler.select, at.baseline, at.scale, at.keep_flat_groups) == (
        "greedy",
        "mean",
        "std",
        False,
    )
    assert (ma.gamma, ma.baseline, ma.scale, ma.reduction, ma.ratio, ma.clip) == (
        1,
        "mean",
        "none",
        "sequence_sum",
        False,
        None,
    )
    assert (ma.sampler.num_candidates, ma.sampler.max_turns, ma.sampler.pairing) == (
        4,
        1,
        "aligned",
    )
    assert (gigpo.omega, gigpo.gamma) == (1, 0.95)
    for one in (grpo, gigpo):
        assert (one.baseline, one.scale) == ("mean", "std")
        assert (one.sampler.num_candidates, one.sampler.max_turns) == (4, 4)
    for one in (at, grpo, gigpo):
        assert (one.clip_low, one.clip_high, one.ratio_of) == (0.2, 0.2, "token")
    assert [a.on_policy for a in (at, ma, MAGRPO(ratio=True), grpo)] == [False, True, False, False]
    for one in (at, ma, grpo, gigpo):
        assert (one.entropy_coef, one.kl_coef, one.needs_reference) == (0, 0, False)
