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
