"""The guard: what it asks an engine, what it compares, and how far that may be off."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engines import team
from factories import VOCABULARY, built_policy, model_folder, plain_logits
from teamtune.callbacks.weight_sync import WeightSync, WeightSyncError, probe_difference
from teamtune.inference import Completion, RolloutEngine, Sampling
from teamtune.policies import Policy
from teamtune.seeds import derive_seed

CPU = torch.device("cpu")
IDS = (3, 5, 4, 9, 9, 3, 7, 8)


class Shifted(RolloutEngine):
    """Says IDS with the policy's log-probs, all off by `shift`, those of the last answer by `more`.

    The latter is of each token, or of the last one alone.
    """

    def __init__(
        self, policy: Policy, shift: float = 0.0, context: int = 64, more: float | list[float] = 0.0
    ):
        self.policy, self.shift, self.context_length = policy, shift, context
        self.more = more if isinstance(more, list) else [0.0] * (len(IDS) - 1) + [more]
        self.asked: list[Any] = []
        self.loaded: list[int] = []

    async def generate(self, prompt_ids, n=1, sampling=None, seed=0):
        self.asked.append((list(prompt_ids), n, sampling, seed))
        said = IDS[: sampling.max_tokens]
        with torch.no_grad():
            logits = plain_logits(self.policy, [*prompt_ids, *said])
        scores = (logits[len(prompt_ids) - 1 : -1] / sampling.temperature).log_softmax(-1)
        right = scores[range(len(said)), list(said)].tolist()
        off = [x + self.shift for x in right]
        last = [x + more for x, more in zip(off, self.more[-len(off) :])]
        return [Completion(said, tuple(x), "", "stop", 0) for x in [off] * (n - 1) + [last]]

    def load_weights(self, named_tensors, version):
        self.loaded.append(version)
        self.version = version


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    return built_policy(model_folder(tmp_path_factory.mktemp("model")))


@pytest.mark.parametrize(
    ("settings", "shift", "passes"),
    [
        ({}, 0.0, True),
        ({}, 0.0009, True),
        ({}, -0.0009, True),
        ({}, 0.0011, False),
        ({}, -0.0011, False),
        ({"tolerance": 0.3}, -0.29, True),
        ({"tolerance": 0.3}, -0.31, False),
        ({}, float("nan"), False),
        ({"tolerance": 0.3}, float("-inf"), False),
        ({"probe_tokens": 0}, 9.0, True),
    ],
)
def test_log_probs_that_are_off_by_more_than_the_tolerance_end_the_run(
    policy, settings, shift, passes
):
    guard, module = WeightSync(**settings), team(policy, Shifted(policy, shift), 1)
    if passes:
        guard.sync(module)
        return
    with pytest.raises(WeightSyncError, match=f"by (.*) on the probe.* = {guard.tolerance:g};"):
        guard.sync(module)


def test_the_mean_decides_and_the_largest_is_told(policy):
    """Two different answers of eight tokens, one token off by 0.32: 0.02 in the mean."""
    for more in (0.32, -0.32):
        found = probe_difference(policy, Shifted(policy, more=more), 0.7, 8, CPU)
        assert found.mean == pytest.approx(0.02, abs=1e-5)
        assert found.largest == pytest.approx(0.32, abs=1e-5)
    assert probe_difference(policy, Shifted(policy), 0.7, 8, CPU).largest < 1e-5
    for tolerance in (0.021, 0.019):
        module, told = team(policy, Shifted(policy, more=0.32), 1), []
        module.session.temperature, module.report = 0.7, told.append
        if tolerance < 0.02:
            with pytest.raises(WeightSyncError, match=r"by 0.02 \(at most 0.32\) on the probe"):
                WeightSync(tolerance).sync(module)
            continue
        WeightSync(tolerance).sync(module)
        assert told[0]["team/probe_mean"] == pytest.approx(0.02, abs=1e-5)
        assert told[0]["team/probe_max"] == pytest.approx(0.32, abs=1e-5)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_one_log_prob_that_is_no_number_ends_the_run(policy, bad):
    with pytest.raises(WeightSyncError, match="by inf"):
        WeightSync(tolerance=0.1).sync(team(policy, Shifted(policy, more=bad), 1))


def test_rounding_of_bfloat16_stops_no_run(policy):
    """With a spread of 0.05 the largest of a probe is above 0.1 now and then."""
    torch.manual_seed(0)
    largest: list[float] = []
    for _ in range(40):
        module = team(policy, Shifted(policy, more=(0.05 * torch.randn(8)).tolist()), 1)
        module.report = lambda told: largest.append(told["team/probe_max"])
        WeightSync(tolerance=0.1).sync(module)
    assert len(largest) == 40 and max(largest) > 0.1


def test_the_probe_is_a_few_short_answers_to_random_ids_drawn_anew_for_every_version(policy):
    engine = Shifted(policy)
    module = team(policy, engine, 3)
    module.session.temperature = 0.7
    WeightSync().sync(module)
    ((prompt, n, sampling, seed),) = engine.asked
    assert (n, sampling, seed) == (4, Sampling(0.7, 8), derive_seed("probe", 3))
    assert len(prompt) == 16 and len(set(prompt)) > 8 and max(prompt) < VOCABULARY
    policy.version = 4
    WeightSync(probe_tokens=2).sync(module)
    again, _, sampling, _ = engine.asked[1]
    assert again != prompt and sampling.max_tokens == 2


@pytest.mark.parametrize(("context", "length", "tokens"), [(64, 16, 8), (10, 2, 8), (5, 1, 4)])
def test_the_probe_leaves_room_for_its_answer(policy, context, length, tokens):
    engine = Shifted(policy, context=context)
    assert probe_difference(policy, engine, 1.0, 8, CPU).largest < 1e-5
    ((prompt, _, sampling, _),) = engine.asked
    assert (len(prompt), sampling.max_tokens) == (length, tokens)


def test_an_engine_that_says_nothing_holds_no_weights(policy):
    engine = Shifted(policy)

    async def silent(prompt_ids, n=1, sampling=None, seed=0):
        return [Completion((), (), "", "failed", 0)] * n

    engine.generate = silent
    with asyncio.Runner() as runner:
        found = probe_difference(policy, engine, 1.0, 8, CPU, runner)
        assert found.mean == found.largest == float("inf")


def test_weights_go_where_they_are_newer_at_every_hook_that_needs_them(policy):
    engine = Shifted(policy)
    sync = WeightSync(probe_tokens=0)
    sync.team = module = team(policy, engine, 0)
    told: list[Any] = []
    module.report = told.append
    hooks = [
        sync.on_train_start,
        sync.on_validation_start,
        sync.on_test_start,
        sync.on_predict_start,
        lambda *_: sync.on_train_batch_end(*_, None, None, 0),
    ]
    for version, hook in enumerate(hooks):
        policy.version = version
        hook(SimpleNamespace(), module)
        hook(SimpleNamespace(), module)
    assert engine.loaded == [0, 1, 2, 3, 4]
    assert len(told) == 10 and all(0 <= each["time/sync"] < 10 for each in told)
