"""Packing: rows that share a prompt score exactly what one row per candidate would score."""

import random
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from factories import (
    END,
    VOCABULARY,
    built_policy,
    candidate,
    group,
    model_folder,
    plain_logits,
    random_group,
)
from teamtune.experience import Candidate, Group
from teamtune.experience.packing import PADDING, PackedBatch, pack, placeholder
from teamtune.policies import Policy

TEMPERATURE = 0.7
HUGE = 10**9


@pytest.fixture(scope="module", params=["llama", "qwen3", "mistral", "gemma3"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp(request.param), request.param)


def plain_logprobs(policy: Policy, prompt: tuple[int, ...], answer: Candidate) -> Tensor:
    """One row, the model's own causal mask and positions, the whole matrix of logits."""
    logits = plain_logits(policy, [*prompt, *answer.token_ids])[len(prompt) - 1 : -1]
    scores = torch.log_softmax(logits / TEMPERATURE, -1)
    return scores[torch.arange(len(scores)), torch.tensor(answer.token_ids)]


def groups_of_unequal_lengths() -> list[Group]:
    rng = random.Random(1)
    return [random_group(rng, answers, task=f"t{answers}") for answers in (3, 1, 4)]


def packed_by_candidate(policy: Policy, groups: list[Group]) -> dict[tuple, Tensor]:
    """Log-probs by (prompt, answer), from one batch with all groups."""
    (batch,) = pack(groups, HUGE)
    logprobs, _ = policy(batch, TEMPERATURE)
    found, at = {}, 0
    rows = sorted(
        groups, key=lambda g: len(g.prompt_ids) + sum(len(c.token_ids) - 1 for c in g.candidates)
    )
    for g in rows:
        for c in g.candidates:
            found[g.prompt_ids, c.token_ids] = logprobs[at : at + len(c.token_ids)]
            at += len(c.token_ids)
    assert at == len(logprobs)
    return found


def test_a_row_holds_the_prompt_once_and_each_answer_without_its_last_token():
    (batch,) = pack([group((7, 8), [candidate((3, 4, END)), candidate((5, END))])], HUGE)
    assert batch.input_ids.tolist() == [[7, 8, 3, 4, 5]]
    assert batch.position_ids.tolist() == [[0, 1, 2, 3, 2]]
    assert batch.segments.tolist() == [[0, 0, 1, 1, 2]]
    assert batch.predicted_from.tolist() == [1, 2, 3, 1, 4]
    assert batch.targets.tolist() == [3, 4, END, 5, END]


def test_groups_of_one_task_share_a_prompt_and_an_equal_answer():
    """The first turns of three episodes: two say the same, at weights of 1/4 and 1/2."""
    said = [candidate((3, 4, END)), candidate((5, END)), candidate((3, 4, END))]
    for answer, weight in zip(said, (0.25, 1.0, 0.5)):
        answer.weight = weight
    groups = [group((7, 8), [answer]) for answer in said]
    (batch,) = pack(groups, HUGE)
    assert batch.input_ids.tolist() == [[7, 8, 3, 4, 5]]
    assert batch.weight.tolist() == [0.75] * 3 + [1.0] * 2
    assert batch.count.tolist() == [2.0] * 3 + [1.0] * 2
    other = [group((7, 8), [candidate((6, END))], task="another")]
    assert len(pack([*groups, *other], HUGE)[0].input_ids) == 2


def test_a_candidate_sees_the_prompt_and_its_own_earlier_tokens_only():
    short = group((7,), [candidate((END,))])
    (batch,) = pack([group((7, 8), [candidate((3, 4, END)), candidate((5, END))]), short], HUGE)
    assert batch.segments[0].tolist() == [0, PADDING, PADDING, PADDING, PADDING]
    visible = (batch.attention_mask(torch.float32)[:, 0] == 0).int().tolist()
    assert visible[1] == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 0, 0, 1],
    ]
    assert [row[1:] for row in visible[0]] == [[int(i == j) for j in range(1, 5)] for i in range(5)]


@pytest.mark.parametrize("attention", ["visible", "sdpa", "eager"])
def test_packed_logprobs_equal_those_of_plain_rows(folder: Path, attention: str):
    policy = built_policy(folder, attention=attention, head_chunk=4)
    groups = groups_of_unequal_lengths()
    packed = packed_by_candidate(policy, groups)
    for g in groups:
        for c in g.candidates:
            plain = plain_logprobs(policy, g.prompt_ids, c)
            torch.testing.assert_close(packed[g.prompt_ids, c.token_ids], plain, atol=1e-5, rtol=0)


@pytest.mark.parametrize("attention", ["visible", "sdpa", "eager"])
def test_packed_gradients_equal_those_of_plain_rows(folder: Path, attention: str):
    packed = built_policy(folder, attention=attention, head_chunk=4)
    plain = built_policy(folder, attention=attention)
    groups = groups_of_unequal_lengths()
    (batch,) = pack(groups, HUGE)
    (packed(batch, TEMPERATURE)[0] * batch.advantages).sum().backward()
    sum(
        plain_logprobs(plain, g.prompt_ids, c).sum() * c.advantage
        for g in groups
        for c in g.candidates
    ).backward()
    for own, other in zip(packed.trainable_parameters(), plain.trainable_parameters()):
        assert other.grad is not None and other.grad.abs().max() > 0
        torch.testing.assert_close(own.grad, other.grad, atol=1e-5, rtol=1e-5)


def test_entropy_is_that_of_the_whole_distribution(folder: Path):
    policy = built_policy(folder)
    g = group((5, 6), [candidate((7, END))])
    (batch,) = pack([g], HUGE)
    _, entropy = policy(batch, TEMPERATURE, True)
    logits = plain_logits(policy, [5, 6, 7])[1:]
    expected = torch.distributions.Categorical(logits=logits / TEMPERATURE).entropy()
    torch.testing.assert_close(entropy, expected, atol=1e-5, rtol=0)


def test_other_candidates_do_not_change_a_candidates_logprobs_and_the_prompt_does(folder: Path):
    policy = built_policy(folder)

    def logprobs(prompt: tuple[int, ...], other: tuple[int, ...]) -> Tensor:
        (batch,) = pack([group(prompt, [candidate(other), candidate((9, 10, END))])], HUGE)
        return policy(batch, 1.0)[0][-3:].detach()

    own = logprobs((5, 6), (7, 8, END))
    torch.testing.assert_close(logprobs((5, 6), (11, 12, END)), own, atol=1e-6, rtol=0)
    torch.testing.assert_close(logprobs((5, 6), (4,) * 6), own, atol=1e-6, rtol=0)
    assert (logprobs((14, 6), (7, 8, END)) - own).abs().min() > 1e-4


def test_the_end_token_is_trained(folder: Path):
    """Raising the end token's log-prob by gradient ascent on a batch raises it in plain scoring."""
    policy = built_policy(folder)
    answer = candidate((9, 10, END))
    before = plain_logprobs(policy, (5, 6), answer).detach()
    (batch,) = pack([group((5, 6), [answer])], HUGE)
    (-policy(batch, TEMPERATURE)[0][-1]).backward()
    with torch.no_grad():
        for p in policy.trainable_parameters():
            p -= 0.05 * p.grad
    assert plain_logprobs(policy, (5, 6), answer)[-1] > before[-1] + 0.01


def test_what_stands_in_padding_changes_nothing(folder: Path):
    results = []
    for garbage in (False, True):
        policy = built_policy(folder)
        long = group((5, 6, 7, 8, 9), [candidate((10, 11, END)), candidate((12, END), -1.0)])
        (batch,) = pack([long, group((3,), [candidate((4, END))])], HUGE)
        padding = batch.segments == PADDING
        assert padding.sum() == 6
        if garbage:
            batch.input_ids[padding] = torch.tensor([1, 28, 17, 3, 9, 22])
            batch.position_ids[padding] = torch.tensor([63, 1, 4, 9, 33, 2])
        logprobs, _ = policy(batch, TEMPERATURE)
        assert len(logprobs) == len(batch.advantages) == len(batch.weight) == 7
        (logprobs * batch.advantages).sum().backward()
        results.append([logprobs.detach(), *(p.grad for p in policy.trainable_parameters())])
    for clean, dirty in zip(*results):
        assert torch.equal(clean, dirty)


def answers_of(batch: PackedBatch) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Prompt and answer ids, read back from what is fed, from where, to predict what."""
    ids, segments = batch.input_ids.flatten().tolist(), batch.segments.flatten().tolist()
    length = batch.input_ids.shape[1]
    found: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for start, target in zip(batch.predicted_from.tolist(), batch.targets.tolist()):
        if segments[start] == 0:
            row = slice(start // length * length, start + 1)
            assert set(segments[row]) == {0}
            found.append((tuple(ids[row]), ()))
        else:
            assert ids[start] == found[-1][1][-1]
        found[-1] = (found[-1][0], (*found[-1][1], target))
    return found


def test_failed_and_empty_answers_are_left_out():
    answers = [candidate((3, END)), candidate((4, END), reward=None), candidate(())]
    (batch,) = pack([group((7,), answers), group((8,), [candidate((), reward=None)])], HUGE)
    assert batch.input_ids.tolist() == [[7, 3]]
    assert batch.targets.tolist() == [3, END]


def test_every_token_may_have_an_advantage_of_its_own():
    answers = [candidate((3, 4, END), [0.5, 0.0, -1.0], reward=1.0), candidate((5, END), 2.0)]
    (batch,) = pack([group((7,), answers)], HUGE)
    assert batch.advantages.tolist() == [0.5, 0.0, -1.0, 2.0, 2.0]
    assert answers[0].credited and not candidate((3,), [0.0], reward=1.0).credited


def test_equal_answers_with_unequal_advantages_of_tokens_are_packed_apart():
    own, same, other = (
        candidate((3, END), advantage, reward=1.0, weight=0.5)
        for advantage in ([1.0, 2.0], (1.0, 2.0), [2.0, 1.0])
    )
    (batch,) = pack([group((7,), [own, same, other])], HUGE)
    assert batch.advantages.tolist() == [1.0, 2.0, 2.0, 1.0]
    assert batch.weight.tolist() == [1.0, 1.0, 0.5, 0.5]
    all_alike = candidate((3, END), [2.0, 2.0], reward=1.0)
    (batch,) = pack([group((7,), [all_alike, candidate((3, END), 2.0)])], HUGE)
    assert batch.weight.tolist() == [2.0, 2.0]


def test_idle_groups_are_counted_and_weigh_nothing():
    own = group((7,), [candidate((3, END), weight=0.5), candidate((4, END), weight=0.0)])
    idle = group((8, 9), [candidate((5, END)), candidate((5, END)), candidate((6,), reward=None)])
    (batch,) = pack([own], HUGE)
    assert (batch.targets.tolist(), batch.weight.tolist()) == ([3, END], [0.5, 0.5])
    (batch,) = pack([own], HUGE, [idle])
    assert batch.targets.tolist() == [3, END, 4, END, 5, END]
    assert batch.weight.tolist() == [0.5, 0.5, 0, 0, 0, 0]
    assert batch.count.tolist() == [1, 1, 1, 1, 2, 2]
    assert batch.sequence.tolist() == [0, 0, 1, 1, 2, 2]


def test_a_group_over_the_budget_is_split_between_candidates():
    answers = [candidate((i, i, END)) for i in (3, 4, 5)]
    batches = pack([group((7, 8), answers)], 6)  # prompt 2 and two answers of 2 fed tokens: 6
    assert [b.input_ids.tolist() for b in batches] == [[[7, 8, 5, 5]], [[7, 8, 3, 3, 4, 4]]]


@given(
    answers=st.lists(st.integers(1, 5), min_size=1, max_size=6),
    budget=st.integers(1, 120),
    seed=st.integers(0, 1000),
)
@settings(max_examples=60, deadline=None)
def test_any_budget_keeps_every_answer_once_behind_its_prompt(
    answers: list[int], budget: int, seed: int
):
    rng = random.Random(seed)
    groups = [random_group(rng, n, task=f"t{i}") for i, n in enumerate(answers)]
    expected = sorted((g.prompt_ids, c.token_ids) for g in groups for c in g.candidates)
    found = []
    for batch in pack(groups, budget):
        own = answers_of(batch)
        assert batch.num_tokens <= budget or len(own) == 1
        found += own
    assert sorted(found) == expected


def test_a_placeholder_weighs_nothing():
    batch = placeholder()
    assert batch.input_ids.tolist() == [[0]] and batch.weight.tolist() == [0.0]
    assert batch.input_ids.max() < VOCABULARY
