"""Cloning raises the likelihood of what was demonstrated, every token alike."""

import math

import pytest
import torch

from factories import END, built_policy, candidate, group, model_folder, rollouts_of
from learning import update
from teamtune.algorithms import TokenBatch
from teamtune.algorithms.cloning import Cloning
from teamtune.experience.packing import pack


def groups():
    """Nobody scored or sampled these."""
    long = candidate((5, 6, 7, END), None, reward=0.0)
    return [group((3,), [long]), group((4,), [candidate((8, END), None, reward=0.0)], task="u")]


def test_every_demonstration_counts_by_its_tokens():
    told = groups()
    Cloning().assign_credit(rollouts_of(told))
    assert [c.advantage for g in told for c in g.candidates] == [1.0, 1.0]
    assert Cloning().trainable(told) == told and Cloning().denominator(told) == 6
    assert (Cloning.needs_reference, Cloning.entropy_coef, Cloning.regularizes) == (False, 0, False)


def test_the_loss_is_the_negative_log_likelihood():
    # chances 1/2 and 1/8, the second token demonstrated twice: log 2 + 2 log 8
    zero, ones = torch.zeros(2), torch.ones(2)
    logprobs = torch.tensor([0.5, 0.125]).log()
    batch = TokenBatch(logprobs, zero, ones, torch.tensor([1.0, 2.0]), ones, zero)
    loss, sums = Cloning().loss(batch)
    assert float(loss) == pytest.approx(7 * math.log(2)) and sums == {}


def test_a_step_makes_the_demonstrated_answers_likelier(tmp_path):
    policy = built_policy(model_folder(tmp_path))

    def likelihood() -> torch.Tensor:
        with torch.no_grad():
            return torch.cat([policy(batch)[0] for batch in pack(groups(), 100)])

    before = likelihood()
    metrics, _ = update({"team": policy}, rollouts_of(groups()), Cloning())
    assert metrics["team/loss"] == pytest.approx(-float(before.mean()), abs=1e-5)
    assert likelihood().mean() > before.mean() + 0.01
