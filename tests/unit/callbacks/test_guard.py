"""What decides whether engine and trainer agree: the mean of the probe's tokens, not the worst."""

import math

import pytest
import torch

from engines import team
from factories import built_policy, model_folder, plain_logits
from teamtune.callbacks.weight_sync import WeightSync, WeightSyncError, probe_difference
from teamtune.inference import Completion, RolloutEngine

CPU = torch.device("cpu")
IDS = (3, 5, 4, 9)


class Off(RolloutEngine):
    """Says IDS with the policy's log-probs, each answer's off by what is given."""

    context_length = 64

    def __init__(self, policy, *off):
        self.policy, self.off = policy, torch.tensor(off)

    async def generate(self, prompt_ids, n=1, sampling=None, seed=0):
        with torch.no_grad():
            logits = plain_logits(self.policy, [*prompt_ids, *IDS])
        right = logits[len(prompt_ids) - 1 : -1].log_softmax(-1)[range(4), list(IDS)]
        return [Completion(IDS, tuple((right + self.off).tolist()), "", "stop", 0)] * n

    def load_weights(self, named_tensors, version):
        self.version = version


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    return built_policy(model_folder(tmp_path_factory.mktemp("model")))


def test_the_mean_and_the_largest_are_over_the_probes_tokens(policy):
    found = probe_difference(policy, Off(policy, 0.3, -0.1, 0.0, 0.0), 1.0, 4, CPU)
    assert found.mean == pytest.approx(0.1, abs=1e-5)
    assert found.largest == pytest.approx(0.3, abs=1e-5)


def test_a_rare_outlier_passes_and_is_reported_where_all_tokens_off_by_less_do_not(policy):
    module, told = team(policy, Off(policy, 0.3, 0.0, 0.0, 0.0), 1), []
    module.report = told.append
    WeightSync(tolerance=0.1).sync(module)
    assert told[0]["team/probe_mean"] == pytest.approx(0.075, abs=1e-5)
    assert told[0]["team/probe_max"] == pytest.approx(0.3, abs=1e-5)
    module = team(policy, Off(policy, 0.12, -0.12, 0.12, -0.12), 1)
    with pytest.raises(WeightSyncError, match=r"by 0.12 \(at most 0.12\) on the probe, more than"):
        WeightSync(tolerance=0.1).sync(module)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_one_log_prob_that_is_no_number_ends_the_run(policy, bad):
    with pytest.raises(WeightSyncError, match="by inf"):
        WeightSync(tolerance=0.1).sync(team(policy, Off(policy, 0.0, bad, 0.0, 0.0), 1))


def test_rounding_of_bfloat16_stops_no_run(policy):
    """With a spread of 0.05 the largest of a probe is above 0.1 now and then."""
    torch.manual_seed(0)
    largest = []
    for _ in range(40):
        module = team(policy, Off(policy, *(0.05 * torch.randn(4)).tolist()), 1)
        module.report = lambda told: largest.append(told["team/probe_max"])
        WeightSync(tolerance=0.1).sync(module)
    assert max(largest) > 0.1
