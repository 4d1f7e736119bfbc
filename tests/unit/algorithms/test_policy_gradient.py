"""Bonus and KL act on every sampled token; a sequence's ratio; a bonus that ends."""

import math
import random
from pathlib import Path

import pytest
import torch

from factories import END, built_policy, candidate, group, model_folder, random_group, redraw
from teamtune.algorithms import ATGRPO, GRPO, MAGRPO, GiGPO, TokenBatch
from teamtune.algorithms.policy_gradient import sequence_means
from teamtune.errors import ConfigError
from teamtune.experience.packing import pack
from teamtune.training import MultiOptimizerLoop
from teamtune.training.loop import Batches

CPU = torch.device("cpu")
ALL = [ATGRPO, MAGRPO, GRPO, GiGPO]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("model"))


def step(folder, algorithm, groups, budget=10**9):
    """One optimizer step of plain SGD; its metrics and the policy."""
    policy = built_policy(folder, reference=algorithm.needs_reference, token_budget=budget)
    optimizers = {"team": policy.optimizer_factory(policy.trainable_parameters())}
    loop = MultiOptimizerLoop(algorithm)
    return loop.run({"team": policy}, optimizers, {"team": groups}, 1.0, 0, CPU), policy


def mean_entropy(policy, groups):
    found = [policy(b, 1.0)[1] for b in pack(groups, 10**9, idle=[])]
    return float(torch.cat(found).mean().detach())


@pytest.mark.parametrize("algorithm", ALL)
def test_the_bonus_moves_a_policy_all_of_whose_groups_are_flat(folder, algorithm):
    rng = random.Random(0)
    groups = [random_group(rng, flat=True, task=f"task-{i}") for i in range(4)]
    for c in (c for g in groups for c in g.candidates):
        c.weight = 0.0
    metrics, before = step(folder, algorithm(), groups)
    assert "team/loss" not in metrics and before.version == 0
    metrics, after = step(folder, algorithm(entropy_coef=1.0), groups)
    assert metrics["team/loss"] == pytest.approx(-mean_entropy(before, groups), abs=1e-5)
    assert mean_entropy(after, groups) > mean_entropy(before, groups)


def test_the_bonus_is_a_mean_over_all_tokens_and_the_policy_loss_is_as_without_it(folder):
    rng = random.Random(1)
    flat = random_group(rng, flat=True, task="flat")
    uneven = random_group(rng, task="uneven")
    alone, _ = step(folder, ATGRPO(), [flat, uneven])
    both, _ = step(folder, ATGRPO(entropy_coef=0.5), [flat, uneven])
    bonus = 0.5 * mean_entropy(policy_before(folder), [flat, uneven])
    assert both["team/loss"] == pytest.approx(alone["team/loss"] - bonus, abs=1e-5)
    tokens = sum(len(c.token_ids) for g in (flat, uneven) for c in g.candidates)
    assert both["team/tokens"] == tokens > alone["team/tokens"]


def policy_before(folder):
    return built_policy(folder)


def test_the_bonus_does_not_depend_on_the_split_into_micro_batches(folder):
    rng = random.Random(2)
    groups = [random_group(rng, flat=i % 2 == 0, task=f"t{i}") for i in range(6)]
    algorithm = MAGRPO(entropy_coef=0.3, kl_coef=0.2)
    whole, one = step(folder, algorithm, groups)
    split, other = step(folder, algorithm, groups, budget=1)
    assert split == pytest.approx(whole, abs=1e-5)
    for a, b in zip(one.trainable_parameters(), other.trainable_parameters()):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=0)


def test_the_target_measures_all_samples():
    surprised = candidate((3, END), 0.0, sampling_logprobs=(-3.0, -1.0))
    calm = candidate((4, END), 1.0, sampling_logprobs=(0.0, 0.0))
    groups = [group((5,), [surprised, surprised], task="a"), group((6,), [calm, calm], task="b")]
    tokens = [c for g in groups for c in g.candidates]
    surprise = -math.fsum(x for c in tokens for x in c.sampling_logprobs)
    totals = Batches([], 0.0, 8, surprise).totals(CPU)
    assert totals.sampled_entropy == 1.0  # (2 * 4 + 2 * 0) / 8
    algorithm = ATGRPO(entropy_coef=0.2, entropy_target=2.0)
    assert algorithm._entropy_weight(totals.sampled_entropy) == pytest.approx(0.1)


def test_a_bonus_that_ends_is_remembered_by_checkpoints():
    algorithm = GRPO(entropy_coef=0.2, entropy_steps=4)
    weights = []
    for _ in range(6):
        weights.append(algorithm._entropy_weight(9.9))
        algorithm.advance()
    assert weights == pytest.approx([0.2, 0.15, 0.1, 0.05, 0.0, 0.0])
    resumed = GRPO(entropy_coef=0.2, entropy_steps=4)
    early = GRPO(entropy_coef=0.2, entropy_steps=4)
    early.advance()
    resumed.load_state_dict(early.state_dict())
    assert resumed._entropy_weight(9.9) == pytest.approx(0.15)


NEAR, FAR = math.log(7.9), math.log(8.1)


def of_gaps(gaps, **tensors):
    """A batch of tokens that the trainer gives log-prob -1, and the engine that minus the gap."""
    n = len(gaps)
    given = {
        "logprobs": torch.full((n,), -1.0, requires_grad=True),
        "sampling_logprobs": -1.0 - torch.tensor(gaps),
        "advantages": -torch.ones(n),
        "weight": torch.ones(n),
        "count": torch.ones(n),
        "sequence": torch.arange(n) // 2,
    }
    return TokenBatch(**{**given, **tensors})


def slopes(algorithm, batch):
    """Loss, gradient at each token, and the weight of what is left out."""
    loss, sums = algorithm.loss(batch)
    (slope,) = torch.autograd.grad(loss, batch.logprobs)
    return float(loss.detach()), slope.tolist(), float(sums.get("mismatch_frac", 0.0))


def test_a_token_that_engine_and_trainer_disagree_about_by_more_than_a_factor_of_8_is_left_out():
    batch = of_gaps([0.0, NEAR, FAR, 20.0, -FAR])
    # negative advantages: nothing bounds the ratio above, below 0.8 clipping ends the gradient
    loss, slope, out = slopes(ATGRPO(), batch)
    assert loss == pytest.approx(1 + 7.9, abs=1e-4) and out == 3
    assert slope == pytest.approx([1, 7.9, 0, 0, 0], abs=1e-4)
    _, slope, out = slopes(ATGRPO(max_mismatch=None), batch)
    assert slope[3] == pytest.approx(math.exp(20), rel=1e-4) and out == 0
    loss, slope, out = slopes(MAGRPO(), batch)  # the weight is 2 at most
    assert loss == pytest.approx(-1 - 2) and slope == pytest.approx([1, 2, 0, 0, 0]) and out == 3


def test_left_out_tokens_count_by_their_weight_and_can_take_their_answer_along():
    weight = torch.tensor([0.5, 3.0, 2.0, 1.0])
    batch = of_gaps([0.0, 3.0, 0.0, 0.0], weight=weight)
    _, slope, out = slopes(GRPO(), batch)
    assert slope == [0.5, 0.0, 2.0, 1.0] and out == 3
    _, slope, out = slopes(GRPO(mask_of="answer"), batch)
    assert slope == [0.0, 0.0, 2.0, 1.0] and out == 3.5
    # a ratio of its own for each answer: what is left out is not in the mean
    _, slope, out = slopes(GRPO(ratio_of="sequence"), batch)
    assert slope == pytest.approx([0.25, 0.0, 1.5, 1.5]) and out == 3


def test_what_the_policy_learned_since_leaves_nothing_out():
    batch = of_gaps([3.0, 3.0], mismatch=torch.tensor([0.1, 3.0]))
    assert slopes(ATGRPO(), batch)[1:] == ([pytest.approx(math.exp(3)), 0.0], 1.0)


@pytest.mark.parametrize("gap", [math.nan, math.inf, -math.inf])
def test_a_mask_hides_nothing_that_is_not_finite(gap):
    assert not math.isfinite(slopes(ATGRPO(), of_gaps([gap]))[0]) or gap == -math.inf
    assert slopes(ATGRPO(), of_gaps([gap]))[2] == 0


@pytest.mark.parametrize("algorithm", ALL)
def test_a_mask_changes_no_bit_where_engine_and_trainer_agree(folder, algorithm):
    rng = random.Random(5)
    groups = [random_group(rng, task=f"t{i}") for i in range(3)]
    for g in groups:
        (batch,) = pack([g], 10**9)
        for c, drawn in zip(
            g.candidates,
            policy_before(folder)(batch)[0].split([len(c.token_ids) for c in batch.answers]),
        ):
            redraw(c, drawn.tolist())
    results = [step(folder, algorithm(max_mismatch=m), groups) for m in (8.0, None)]
    (metrics, masked), (other, plain) = results
    assert metrics.pop("team/mismatch_frac") == 0 and metrics == other
    for a, b in zip(masked.trainable_parameters(), plain.trainable_parameters()):
        assert torch.equal(a, b)


def test_a_mask_of_answers_needs_a_mask():
    with pytest.raises(ConfigError, match="mask_of: got answer, no effect with max_mismatch null"):
        ATGRPO(max_mismatch=None, mask_of="answer")


@pytest.mark.parametrize("option", [{"entropy_target": 1.0}, {"entropy_steps": 5}])
def test_options_of_a_bonus_that_is_off_are_refused(option):
    with pytest.raises(ConfigError, match=f"{next(iter(option))}: no effect with entropy_coef 0"):
        ATGRPO(**option)


def test_a_sequence_has_the_geometric_mean_of_its_tokens_ratios():
    values = torch.tensor([1.0, 3.0, 5.0, 7.0])
    means = sequence_means(values, torch.tensor([0, 0, 0, 1]))
    assert means.tolist() == [3.0, 3.0, 3.0, 7.0]


@pytest.mark.parametrize("algorithm", [ATGRPO, GRPO])
def test_losses_are_clipped_below_and_gains_above(algorithm):
    # ratios 1.5 of a gain and 0.5 of a loss: clipped to 1.4 and to 0.9
    batch = TokenBatch(
        logprobs=torch.tensor([1.5, 0.5]).log(),
        sampling_logprobs=torch.zeros(2),
        advantages=torch.tensor([1.0, -1.0]),
        weight=torch.tensor([1.0, 10.0]),
        count=torch.ones(2),
        sequence=torch.tensor([0, 1]),
    )
    loss, sums = algorithm(clip_low=0.1, clip_high=0.4).loss(batch)
    assert float(loss) == pytest.approx(-1.4 + 10 * 0.9) and float(sums["clip_frac"]) == 11
    loss, sums = algorithm(clip_low=0.6, clip_high=0.4).loss(batch)
    assert float(loss) == pytest.approx(-1.4 + 10 * 0.5) and float(sums["clip_frac"]) == 1


def test_the_sequence_ratio_is_clipped_as_one():
    # log ratios 0.3 and -0.1: mean 0.1, ratio e^0.1 = 1.105 for both tokens, clipped to 1.05
    batch = TokenBatch(
        logprobs=torch.tensor([-0.7, -1.1]),
        sampling_logprobs=torch.tensor([-1.0, -1.0]),
        advantages=torch.ones(2),
        weight=torch.ones(2),
        count=torch.ones(2),
        sequence=torch.tensor([0, 0]),
    )
    loss, sums = GRPO(ratio_of="sequence", clip_low=0.05, clip_high=0.05).loss(batch)
    assert float(loss) == pytest.approx(-2 * 1.05) and float(sums["clip_frac"]) == 2
    loss, _ = GRPO(ratio_of="sequence", clip_high=0.2).loss(batch)
    assert float(loss) == pytest.approx(-2 * math.exp(0.1), abs=1e-6)
