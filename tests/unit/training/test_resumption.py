"""An optimizer after a checkpoint: to the bit as if there had been none, under the new settings."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from factories import built_policy, model_folder
from teamtune.policies import Policy
from teamtune.training.fingerprint import settings
from teamtune.training.resumption import configure


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("model"))


def made(folder: Path, fused: bool) -> tuple[Policy, torch.optim.Optimizer]:
    policy = built_policy(folder, optimizer=lambda p: torch.optim.AdamW(p, lr=1e-3, fused=fused))
    return policy, policy.optimizer_factory(policy.trainable_parameters())


def walk(policy: Policy, optimizer: torch.optim.Optimizer, steps: range) -> list[Tensor]:
    """The weights after steps on gradients that depend on their number alone."""
    parameters = policy.trainable_parameters()
    for number in steps:
        generator = torch.Generator().manual_seed(number)
        for p in parameters:
            p.grad = torch.randn(p.shape, generator=generator)
        optimizer.step()
    return [p.detach().clone() for p in parameters]


def resumed(folder: Path, before: bool, now: bool) -> tuple[list[Tensor], Any]:
    """Two steps, a checkpoint, and two more by a policy and an optimizer made anew."""
    policy, optimizer = made(folder, before)
    walk(policy, optimizer, range(2))
    saved = copy.deepcopy((policy.state_dict(), optimizer.state_dict()))
    first = settings(optimizer.param_groups[0])
    policy, optimizer = made(folder, now)
    policy.load_state_dict(saved[0])
    optimizer.load_state_dict(saved[1])
    changed = configure(policy, optimizer, None, 0, first)
    return walk(policy, optimizer, range(2, 4)), changed


@pytest.mark.parametrize("fused", [False, True])
def test_a_resumed_optimizer_steps_as_one_that_went_on(folder: Path, fused: bool):
    straight = walk(*made(folder, fused), range(4))
    after, changed = resumed(folder, fused, fused)
    assert changed == {} and all(torch.equal(a, b) for a, b in zip(straight, after, strict=True))


def test_an_optimizer_can_be_fused_from_a_checkpoint_on(folder: Path):
    straight = walk(*made(folder, False), range(4))
    after, changed = resumed(folder, False, True)
    assert changed == {"fused": (False, True)}
    for a, b in zip(straight, after, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=0)
