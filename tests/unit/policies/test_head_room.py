"""The head keeps what there is room for, and computes the rest again, to the same end."""

import random

import pytest
import torch

from factories import VOCABULARY, built_policy, model_folder, random_group
from teamtune.experience.packing import pack

CHUNK = 4
ROW = 4 * VOCABULARY


@pytest.mark.parametrize("entropy", [False, True])
def test_kept_and_repeated_chunks_of_the_head_give_one_gradient(tmp_path, entropy):
    model_folder(tmp_path)
    rng = random.Random(0)
    (batch,) = pack([random_group(rng, 4) for _ in range(3)], 10_000)
    chunks = -(-len(batch.targets) // CHUNK)
    assert chunks > 5
    found = []
    for kept in (0, 2, chunks):
        policy = built_policy(tmp_path, head_chunk=CHUNK)
        policy.scorer.kept_bytes = kept * CHUNK * ROW * (2 if entropy else 1)
        runs: list[int] = []
        policy.scorer.lm.lm_head.register_forward_hook(lambda *_, runs=runs: runs.append(1))
        logprobs, entropies = policy(batch, 0.7, entropy)
        (logprobs * batch.advantages + entropies).sum().backward()
        assert len(runs) == 2 * chunks - kept
        found.append([logprobs.detach(), entropies.detach()])
        found[-1] += [p.grad for p in policy.trainable_parameters()]
    for own in found[1:]:
        assert all(torch.equal(x, y) for x, y in zip(own, found[0], strict=True))


@pytest.mark.parametrize(("gib", "runs"), [(0.0, 2), (0.5, 1)])
def test_the_room_is_given_in_gib(tmp_path, gib, runs):
    policy = built_policy(model_folder(tmp_path), head_kept_gib=gib)
    (batch,) = pack([random_group(random.Random(0))], 10_000)
    seen: list[int] = []
    policy.scorer.lm.lm_head.register_forward_hook(lambda *_: seen.append(1))
    policy(batch)[0].sum().backward()
    assert len(seen) == runs


@pytest.mark.parametrize("cap", [None, 5.0])
@pytest.mark.parametrize("entropy", [False, True])
def test_what_a_kept_token_takes_is_counted(tmp_path, entropy, cap):
    policy = built_policy(model_folder(tmp_path))
    policy.scorer.lm.config.final_logit_softcapping = cap
    (batch,) = pack([random_group(random.Random(0))], 10_000)
    held: dict[int, int] = {}

    def hold(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.shape == (len(batch.targets), VOCABULARY):
            held[tensor.data_ptr()] = tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(hold, lambda x: x):
        policy(batch, 0.7, entropy)
    assert sum(held.values()) == policy.scorer._bytes_per_token(entropy) * len(batch.targets)
