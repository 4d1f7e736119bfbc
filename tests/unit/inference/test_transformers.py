"""TransformersEngine: the trainer's log-probs, seeds per sample, continuous batching; `draw`."""

import asyncio
from pathlib import Path

import numpy as np
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
from teamtune.callbacks.weight_sync import WeightSync, WeightSyncError
from teamtune.inference import Sampling, TransformersEngine
from teamtune.inference.sampling import draw, uniforms


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def engine(folder) -> TransformersEngine:
    return TransformersEngine(str(folder), Sampling(max_tokens=8))


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_log_probs_equal_the_trainers_before_and_after_an_update(folder, temperature):
    engine, policy = TransformersEngine(str(folder)), make_policy(folder)
    assert difference(policy, engine, temperature) < 1e-5
    perturb(policy)
    assert difference(policy, engine, temperature) > 0.01
    engine.load_weights(policy.full_weights(), 1)
    assert difference(policy, engine, temperature) < 1e-5


def test_log_probs_at_another_temperature_are_told_apart(folder, engine):
    answers = [ask(engine, temperature=0.7, max_tokens=8)]
    assert scored(make_policy(folder), [[4, 5]], answers, 0.7) < 1e-5
    assert scored(make_policy(folder), [[4, 5]], answers, 1.0) > 0.01


def test_the_engine_does_not_share_the_trainers_tensors(folder):
    engine, policy = TransformersEngine(str(folder), Sampling(max_tokens=8)), make_policy(folder)
    engine.load_weights(policy.full_weights(), 1)
    before = ask(engine, n=4)
    perturb(policy)
    assert ask(engine, n=4) == before


@pytest.mark.parametrize(
    "name",
    [
        "model.embed_tokens.weight",
        "lm_head.weight",
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.1.self_attn.o_proj.weight",
        "model.layers.1.mlp.down_proj.weight",
        "model.layers.0.input_layernorm.weight",
        "model.norm.weight",
    ],
)
def test_the_guard_stops_a_run_whose_engine_has_one_stale_tensor(tmp_path, name):
    engine = TransformersEngine(str(tiny_model(tmp_path, tied=False)))
    policy = make_policy(tmp_path)
    load, stale = engine.load_weights, engine.model.state_dict()[name].clone()
    perturb(policy)
    engine.load_weights = lambda named_tensors, version: load(
        [(n, stale if n == name else t) for n, t in named_tensors], version
    )
    engine.chat.stop_ids = frozenset()  # a probe of one token would not tell every tensor
    module = team(policy, engine, version=1)
    with pytest.raises(WeightSyncError, match="policy 'team', version 1"):
        WeightSync().sync(module)
    engine.load_weights, engine.version = load, -1
    WeightSync().sync(module)
    assert engine.version == 1


def test_weights_that_are_missing_unknown_or_tied_are_told(folder):
    engine, policy = TransformersEngine(str(folder)), make_policy(folder)
    weights = dict(policy.full_weights())
    with pytest.raises(ValueError, match=r"model\.norm\.weight"):
        engine.load_weights([(n, t) for n, t in weights.items() if n != "model.norm.weight"], 1)
    with pytest.raises(ValueError, match="extra"):
        engine.load_weights([*weights.items(), ("extra", torch.zeros(1))], 1)
    assert engine.version == -1
    engine.load_weights([(n, t) for n, t in weights.items() if n != "lm_head.weight"], 1)
    assert engine.version == 1


def test_candidate_k_is_a_request_of_its_own_with_seed_plus_k(engine, monkeypatch):
    monkeypatch.setattr(engine.chat, "stop_ids", frozenset())  # long answers do not coincide
    together = ask(engine, n=4, seed=7)
    assert ids(together) == [ask(engine, seed=7 + k)[0].token_ids for k in range(4)]
    assert len(set(ids(together))) == 4


def test_two_runs_give_the_same_bits(folder):
    sampling = Sampling(max_tokens=10)
    requests = [(prompt, 3, sampling, i) for i, prompt in enumerate(PROMPTS)]
    first = ask_all(TransformersEngine(str(folder)), requests)
    assert first == ask_all(TransformersEngine(str(folder)), requests)


def test_what_else_runs_does_not_change_the_ids(engine):
    alone = ask(engine, n=3, seed=5, max_tokens=12)
    greedy = Sampling(temperature=0.0, max_tokens=9)
    others = [(p, 2, greedy if i % 2 else None, i) for i, p in enumerate(PROMPTS)]
    together = ask_all(engine, [*others, ([4, 5], 3, Sampling(max_tokens=12), 5)])
    assert ids(together[-1]) == ids(alone)


def test_requests_join_a_running_batch_and_finished_rows_leave_it(engine, monkeypatch):
    rows: list[list[int]] = []
    decode = engine._decode

    def spy(batch):
        rows.append([row.request.seed for row in batch.rows for _ in row.samples])
        return decode(batch)

    monkeypatch.setattr(engine, "_decode", spy)
    monkeypatch.setattr(engine.chat, "stop_ids", frozenset())

    async def run():
        long = asyncio.ensure_future(engine.generate([4], 1, Sampling(max_tokens=20), 1))
        while len(rows) < 5:
            await asyncio.sleep(0)
        short = await engine.generate([5, 6], 2, Sampling(max_tokens=3), 2)
        assert not long.done()
        return await long, short

    long, short = asyncio.run(run())
    assert [len(c.token_ids) for c in (*long, *short)] == [20, 3, 3]
    assert rows[:5] == [[1]] * 5
    assert [1, 2, 2] in rows
    assert rows[-1] == [1]
    assert len(rows) == 19
    assert rows.count([1, 2, 2]) == 2


def test_samples_are_one_row_for_as_long_as_they_agree(engine, monkeypatch):
    rows: list[int] = []
    decode = engine._decode
    monkeypatch.setattr(
        engine, "_decode", lambda batch: rows.append(len(batch.rows)) or decode(batch)
    )
    monkeypatch.setattr(engine.chat, "stop_ids", frozenset())
    answers = ids(ask(engine, n=16, seed=3, max_tokens=4))
    assert rows == [len({a[:length] for a in answers}) for length in (1, 2, 3)]
    assert rows[0] < 16


def test_a_full_batch_makes_requests_wait(folder):
    sampling = Sampling(max_tokens=6)
    requests = [(prompt, 2, sampling, i) for i, prompt in enumerate(PROMPTS)]
    narrow = TransformersEngine(str(folder), max_batch_rows=2)
    wide = TransformersEngine(str(folder))
    assert [ids(a) for a in ask_all(narrow, requests)] == [ids(a) for a in ask_all(wide, requests)]


def test_answers_stop_at_any_end_token_and_include_it(engine):
    answers = ask(engine, n=200, max_tokens=8)
    stopped = [c for c in answers if c.stop_reason == "stop"]
    cut = [c for c in answers if c.stop_reason == "length"]
    assert {c.token_ids[-1] for c in stopped} == set(ENDS)
    assert all(i not in ENDS for c in stopped for i in c.token_ids[:-1])
    assert cut and all(len(c.token_ids) == 8 and not set(ENDS) & set(c.token_ids) for c in cut)
    assert all(len(c.token_ids) == len(c.logprobs) for c in answers)
    assert all("<eos>" not in c.text for c in answers)


def test_prompts_that_leave_no_room_fail(engine):
    assert ask(engine, [4] * 120, max_tokens=8)[0].stop_reason != "too_long"
    for prompt in ([4] * 121, []):
        answers = ask(engine, prompt, n=2, max_tokens=8)
        assert [(c.stop_reason, c.token_ids, c.version) for c in answers] == [
            ("too_long", (), -1)
        ] * 2


def test_greedy_answers_are_scored_at_temperature_one(folder, engine):
    greedy = ask(engine, n=2, temperature=0.0, max_tokens=6)
    assert greedy[0] == greedy[1]
    assert scored(make_policy(folder), [[4, 5]], [greedy], 1.0) < 1e-5


def test_a_failure_reaches_all_that_wait_and_the_engine_lives_on(engine, monkeypatch):
    decode = engine._decode

    def fail(batch):
        raise FloatingPointError("broken")

    async def run():
        calls = [engine.generate(p, 2, Sampling(max_tokens=9), i) for i, p in enumerate(PROMPTS)]
        return await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 20)

    monkeypatch.setattr(engine, "_decode", fail)
    failures = asyncio.run(run())
    assert [type(f) for f in failures] == [FloatingPointError] * len(PROMPTS)
    monkeypatch.setattr(engine, "_decode", decode)
    assert all(isinstance(f, list) for f in asyncio.run(run()))


PROBABILITIES = torch.tensor([0.15, 0.5, 0.05, 0.3])


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, [0, 1, 2, 3]),
        ({"top_k": 2}, [1, 3]),
        ({"top_k": 1}, [1]),
        ({"top_p": 0.4}, [1]),
        ({"top_p": 0.6}, [1, 3]),
        ({"top_p": 0.94}, [0, 1, 3]),
        ({"top_p": 0.94, "top_k": 2}, [1, 3]),
        ({"top_p": 0.6, "top_k": 2}, [1]),
        ({"top_p": 1e-9}, [1]),
    ],
)
def test_draw_samples_the_truncated_distribution_and_scores_it(options, kept):
    count = 20_000
    logits = PROBABILITIES.log().expand(count, -1)
    drawn, logprobs = draw(logits, uniforms(np.arange(count), np.zeros(count)), 1.0, **options)
    expected = torch.zeros(4)
    expected[kept] = PROBABILITIES[kept] / PROBABILITIES[kept].sum()
    torch.testing.assert_close(logprobs, expected.log()[drawn], rtol=0, atol=1e-6)
    frequencies = torch.bincount(drawn, minlength=4) / count
    deviation = (expected * (1 - expected) / count).sqrt()
    assert ((frequencies - expected).abs() <= 4 * deviation).all()


def test_draw_divides_the_logits_by_the_temperature():
    logits = torch.tensor([[0.0, 1.0, 2.0]]).expand(10_000, -1)
    drawn, logprobs = draw(logits, uniforms(np.arange(10_000), np.ones(10_000)), 0.5)
    expected = torch.softmax(torch.tensor([0.0, 2.0, 4.0]), 0)
    torch.testing.assert_close(logprobs, expected.log()[drawn], rtol=0, atol=1e-6)
    assert (torch.bincount(drawn, minlength=3) / 10_000 - expected).abs().max() < 0.02


def test_the_engine_draws_words_as_often_as_they_are_likely(folder, engine):
    count = 4000
    answers = ask(engine, n=count, max_tokens=1)
    with torch.no_grad():
        expected = engine.model(torch.tensor([[4, 5]])).logits[0, -1].softmax(-1)
    frequencies = torch.bincount(torch.tensor([c.token_ids[0] for c in answers]), minlength=23)
    deviation = (expected * (1 - expected) / count).sqrt()
    assert ((frequencies / count - expected).abs() <= 4.5 * deviation + 1e-3).all()
