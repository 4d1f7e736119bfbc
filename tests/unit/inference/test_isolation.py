"""vLLM in the trainer's process: several engines, and nothing of the process changes hands."""

import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engines import ask, difference, ids, make_policy, perturb, tiny_model
from teamtune import ranks
from teamtune.inference import Sampling
from teamtune.inference.vllm import VLLMEngine

pytestmark = pytest.mark.vllm
SMALL: dict[str, Any] = {"kv_cache_gib": 0.01, "max_num_seqs": 64}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    pytest.importorskip("vllm")
    return tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def engine(folder):
    engine = VLLMEngine(str(folder), Sampling(max_tokens=8), **SMALL)
    engine.load_weights(make_policy(folder).full_weights(), 0)
    yield engine
    engine.close()


def process_state():
    """What belongs to the whole process, and to the trainer."""
    return {
        "signals": [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)],
        "hook": sys.excepthook,
        "torch": (torch.get_default_dtype(), torch.get_num_threads(), torch.set_num_threads),
        "affinity": os.sched_getaffinity(0),
        "groups": (torch.distributed.is_initialized(), ranks.world_size()),
        "random": (random.getstate(), int(np.random.get_state()[1].sum())),
        "torch random": torch.get_rng_state().tolist(),
        "environment": {k: v for k, v in os.environ.items() if not k.startswith(("VLLM_", "_"))},
    }


def test_two_engines_live_in_one_process_and_leave_it_as_it_was(folder, engine):
    before = process_state()
    other = VLLMEngine(str(folder), Sampling(max_tokens=8), **SMALL)
    policy = make_policy(folder)
    expected = ids(ask(engine, n=4))
    assert ids(ask(other, n=4)) == expected
    perturb(policy)
    other.load_weights(policy.full_weights(), 1)
    assert (engine.version, other.version) == (0, 1)
    assert ids(ask(engine, n=4)) == expected
    assert difference(make_policy(folder), engine, 1.0) < 1e-5
    assert difference(policy, other, 1.0) < 1e-5
    other.close()
    other.close()
    assert ids(ask(engine, n=4)) == expected
    assert process_state() == before
    assert os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"


def test_engine_and_trainer_each_see_their_own_process_group(folder, engine):
    dist = torch.distributed
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    group = dist.group.WORLD
    other = VLLMEngine(str(folder), Sampling(max_tokens=8), **SMALL)
    expected = ids(ask(engine, n=2))
    assert ids(ask(other, n=2)) == expected
    other.close()
    assert dist.group.WORLD is group
    value = torch.ones(1)
    dist.all_reduce(value)
    dist.destroy_process_group()
    again = VLLMEngine(str(folder), Sampling(max_tokens=8), **SMALL)
    assert ids(ask(again, n=2)) == ids(ask(engine, n=2)) == expected
    again.close()
    assert not dist.is_initialized()
