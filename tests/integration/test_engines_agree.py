"""Engines next to real training: a model of 135M parameters, and two ranks with FSDP2."""

import os
import socket
from pathlib import Path

import pytest
import torch

from engines import ask, ask_all, ids, make_policy, perturb, scored, tiny_model
from teamtune import ranks
from teamtune.callbacks.weight_sync import probe_difference
from teamtune.inference import RolloutEngine, Sampling, TransformersEngine
from teamtune.inference.vllm import VLLMEngine
from teamtune.policies import TinyLlama

CPU = torch.device("cpu")


@pytest.mark.slow
@pytest.mark.skipif("TEAMTUNE_SMOLLM2" not in os.environ, reason="needs SmolLM2-135M-Instruct")
@pytest.mark.parametrize("back_end", ["transformers", pytest.param("vllm", marks=pytest.mark.vllm)])
def test_a_model_of_135m_parameters_agrees_with_the_trainer(back_end):
    folder, sampling = os.environ["TEAMTUNE_SMOLLM2"], Sampling(max_tokens=32)
    engine: RolloutEngine
    if back_end == "vllm":
        pytest.importorskip("vllm")
        engine = VLLMEngine(folder, sampling, max_model_len=512, kv_cache_gib=0.25)
    else:
        engine = TransformersEngine(folder, sampling)
    policy = make_policy(folder)
    with torch.no_grad():
        for parameter in policy.trainable_parameters():
            parameter.mul_(1.01)
    engine.load_weights(policy.full_weights(), 1)
    prompt = engine.chat.encode([{"role": "user", "content": "Name three colours."}])
    for temperature in (0.7, 1.0):
        answers = ask_all(engine, [(prompt, 4, Sampling(temperature, 32), 1)])
        worst = scored(policy, [prompt], answers, temperature)
        print(f"{back_end}, temperature {temperature}: largest difference {worst:.2g}")
        assert worst < 1e-4
    engine.close()


@pytest.mark.parametrize("context", [2, 8, 9])
def test_the_probe_fits_into_any_context(tmp_path, context):
    """Eight tokens are asked for; in a context of eight or less there is no room for them."""
    TinyLlama(["a", "b"], 32, 1, 2, 64, context_length=context).build(tmp_path, 0)
    engine, policy = TransformersEngine(str(tmp_path), Sampling()), make_policy(tmp_path)
    engine.load_weights(policy.full_weights(), 1)
    assert probe_difference(policy, engine, 1.0, 8, CPU).largest < 1e-5


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.parametrize("first", ["group", "engine"])
def test_two_sharded_ranks_have_engines_of_their_own(tmp_path, first):
    pytest.importorskip("vllm")
    folder = tiny_model(tmp_path / "model")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.multiprocessing.spawn(run_rank, (str(folder), first, port), 2)


def run_rank(rank: int, folder: str, first: str, port: int) -> None:
    dist = torch.distributed
    torch.set_num_threads(1)

    def form_group():
        address = f"tcp://127.0.0.1:{port}"
        dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
        return dist.device_mesh.init_device_mesh("cpu", (2,))

    mesh = form_group() if first == "group" else None
    settings = {"kv_cache_gib": 0.01, "max_num_seqs": 8}
    engines = [VLLMEngine(folder, Sampling(max_tokens=8), **settings) for _ in range(1 + rank)]
    if mesh is None:
        assert not dist.is_initialized()
        mesh = form_group()
    engine = engines[0]
    policy = make_policy(Path(folder), mesh)
    perturb(policy)
    engine.load_weights(policy.full_weights(), 1)
    assert probe_difference(policy, engine, 0.7, 8, CPU).largest < 1e-5
    if rank == 0:  # a step on one rank alone must not wait for the other
        ask(engine, n=4, seed=1)
    assert (ranks.world_size(), ranks.rank()) == (2, rank)
    equal = ranks.gathered(ids(ask(engine, n=2, seed=5)))
    assert equal[0] == equal[1]
    own = ranks.gathered(ids(ask(engine, n=2, seed=5 + 10 * rank)))
    assert own[0] != own[1]
    value = torch.ones(1)
    dist.all_reduce(value, group=dist.new_group([0, 1]))
    assert value.item() == 2
    for each in engines:
        each.close()
    assert ranks.gathered(rank) == [0, 1]
    dist.destroy_process_group()
