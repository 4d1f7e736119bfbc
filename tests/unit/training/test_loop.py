"""The update: whole-step denominators, an optimizer per policy, and no failure hidden."""

import copy
import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from torch import Tensor

from factories import (
    END,
    built_policy,
    candidate,
    group,
    model_folder,
    plain_logits,
    random_group,
    redraw,
    rollouts_of,
)
from teamtune.algorithms import ATGRPO
from teamtune.errors import ConfigError
from teamtune.experience import Group
from teamtune.experience.packing import pack
from teamtune.policies import Policy
from teamtune.training import MultiOptimizerLoop, TeamModule
from teamtune.training.data import TaskDataModule, TaskLoader
from teamtune.training.loop import Batches

HUGE = 10**9
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("model"))


def train(
    policies: Mapping[str, Policy],
    experience: Mapping[str, Sequence[Group]],
    algorithm: ATGRPO | None = None,
    epochs: int = 1,
    minibatch_tasks: int | None = None,
    temperature: float = 1.0,
) -> dict[str, float]:
    """One rollout's update with each policy's own optimizer."""
    loop = MultiOptimizerLoop(algorithm or ATGRPO(), epochs, minibatch_tasks)
    optimizers = {n: p.optimizer_factory(p.trainable_parameters()) for n, p in policies.items()}
    return loop.run(policies, optimizers, experience, temperature, 0, CPU)


def weights(policy: Policy) -> list[Tensor]:
    return [p.detach().clone() for p in policy.trainable_parameters()]


def same(own: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(own, other, strict=True))


def some_groups(seed: int = 0, count: int = 5, **key: str) -> list[Group]:
    rng = random.Random(seed)
    return [random_group(rng, task=f"task-{i}", **key) for i in range(count)]


def sampled_now(policy: Policy, groups: list[Group]) -> list[Group]:
    """The groups, as if `policy` had just sampled their answers."""
    for g in groups:
        for c in g.candidates:
            again = candidate(c.token_ids)
            logprobs, _ = policy(pack([group(g.prompt_ids, [again])], HUGE)[0])
            redraw(c, logprobs.tolist())
    return groups


@pytest.mark.parametrize("settings", [{}, {"entropy_coef": 0.1, "kl_coef": 0.1}])
def test_the_step_does_not_depend_on_the_split_into_micro_batches(folder: Path, settings: Any):
    results = []
    for budget in (HUGE, 30, 1):
        policy = built_policy(folder, reference=True, token_budget=budget)
        metrics = train({"team": policy}, {"team": some_groups()}, ATGRPO(**settings), epochs=2)
        results.append((metrics, weights(policy)))
    assert len(pack(some_groups(), 30)) > 2 and len(pack(some_groups(), 1)) == 15
    (metrics, reached), *others = results
    assert metrics["team/grad_norm"] > 0.1
    for other_metrics, other_reached in others:
        assert other_metrics == pytest.approx(metrics, abs=1e-5)
        for own, other in zip(reached, other_reached):
            torch.testing.assert_close(own, other, atol=1e-5, rtol=0)


def test_no_gradient_takes_memory_after_a_step(folder: Path):
    policy = built_policy(folder)
    before = weights(policy)
    train({"team": policy}, {"team": some_groups()}, ATGRPO())
    assert not same(before, weights(policy))
    assert all(p.grad is None for p in policy.parameters())


@pytest.mark.parametrize("settings", [{}, {"entropy_coef": 0.1, "kl_coef": 0.1}])
def test_equal_candidates_that_are_packed_once_learn_as_if_packed_apart(
    folder: Path, settings: Any
):
    results = []
    for apart in (False, True):
        groups = some_groups(7)
        for g in groups:
            g.candidates += [copy.copy(g.candidates[i]) for i in (0, 1, 1)]
            if apart:  # log-probs that differ beyond what a loss notices
                for i, c in enumerate(g.candidates):
                    redraw(c, [x + 1e-9 * i for x in c.sampling_logprobs])
        count = sum(len(b.targets) for b in pack(groups, HUGE))
        policy = built_policy(folder, reference=True)
        metrics = train({"team": policy}, {"team": groups}, ATGRPO(**settings), epochs=2)
        results.append((count, metrics, weights(policy)))
    (once, metrics, reached), (all_, metrics_apart, reached_apart) = results
    assert once < all_ == metrics["team/tokens"]
    assert metrics == pytest.approx(metrics_apart, abs=1e-5)
    for own, other in zip(reached, reached_apart):
        torch.testing.assert_close(own, other, atol=1e-5, rtol=0)


def test_a_candidates_weight_counts_as_that_many_copies(folder: Path):
    reached = []
    for copies in (1, 3):
        groups = some_groups(8)
        for g in groups:
            first = g.candidates[0]
            first.weight = 3.0 / copies
            g.candidates += [copy.copy(first) for _ in range(copies - 1)]
        algorithm = ATGRPO()
        algorithm.denominator = lambda groups: 50.0  # type: ignore[method-assign]
        policy = built_policy(folder)
        metrics = train({"team": policy}, {"team": groups}, algorithm)
        reached.append((metrics["team/loss"], weights(policy)))
    assert reached[0][0] == pytest.approx(reached[1][0], abs=1e-6)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(reached[0][1], reached[1][1]))


def test_the_loss_is_the_mean_over_tokens_of_the_whole_step(folder: Path):
    policy = built_policy(folder, token_budget=1)
    groups = [
        group((5, 6), [candidate((7, END), 1.0), candidate((8, 9, END), -1.0)]),
        group((4,), [candidate((END,), 0.5), candidate((3, 3, 3, END), -0.5)], task="task-1"),
    ]
    metrics = train({"team": policy}, {"team": sampled_now(policy, groups)})
    # ratio 1: -(2 * 1 - 3 * 1 + 1 * 0.5 - 4 * 0.5) / 10
    assert metrics["team/loss"] == pytest.approx(0.25, abs=1e-6)
    assert metrics["team/tokens"] == 10


def test_with_one_update_the_ratio_is_one_and_nothing_is_clipped(folder: Path):
    policy = built_policy(folder)
    metrics = train({"team": policy}, {"team": sampled_now(policy, some_groups())})
    assert metrics["team/sampling_gap"] < 1e-6 and metrics["team/approx_kl"] < 1e-6
    assert metrics["team/clip_frac"] == 0


def scores(policy: Policy, groups: Sequence[Group], temperature: float) -> list[Tensor]:
    """[L, V] log-probs at each token of every answer, by plain teacher forcing."""
    assert policy.scorer is not None
    found = []
    for g in groups:
        for c in g.candidates:
            logits = plain_logits(policy, [*g.prompt_ids, *c.token_ids])
            logits = logits[len(g.prompt_ids) - 1 : -1].detach()
            found.append((logits / temperature).log_softmax(-1))
    return found


def of_the_tokens(scores: Sequence[Tensor], groups: Sequence[Group]) -> list[Tensor]:
    """What `scores` say of the answers' own tokens."""
    answers = [c.token_ids for g in groups for c in g.candidates]
    return [s[range(len(ids)), list(ids)] for s, ids in zip(scores, answers)]


def test_the_trainer_scores_at_the_temperature_of_the_samples(folder: Path):
    policy, groups = built_policy(folder, reference=True), some_groups()
    cool = scores(policy, groups, 0.7)
    for c, logprobs in zip((c for g in groups for c in g.candidates), of_the_tokens(cool, groups)):
        redraw(c, logprobs.tolist())
    entropy = torch.cat([-(s.exp() * s).sum(-1) for s in cool]).mean()
    metrics = train({"team": policy}, {"team": groups}, ATGRPO(kl_coef=0.1), temperature=0.7)
    assert metrics["team/sampling_gap"] < 1e-6 and abs(metrics["team/ref_kl"]) < 1e-9
    assert metrics["team/entropy"] == pytest.approx(float(entropy), abs=1e-5)
    warm = train({"team": built_policy(folder)}, {"team": groups})
    assert warm["team/sampling_gap"] > 0.1 and warm["team/approx_kl"] > 0.01


def test_what_is_told_of_the_samples_is_a_mean_over_their_tokens(folder: Path):
    policy, groups = built_policy(folder), some_groups()
    now = torch.cat(of_the_tokens(scores(policy, groups, 1.0), groups))
    gap = now - torch.tensor([x for g in groups for c in g.candidates for x in c.sampling_logprobs])
    metrics = train({"team": policy}, {"team": groups})
    assert metrics["team/sampling_gap"] == pytest.approx(float(gap.abs().mean()), abs=1e-5)
    assert metrics["team/approx_kl"] == pytest.approx(float((gap.exp() - 1 - gap).mean()), abs=1e-4)


def test_the_kl_term_is_that_to_the_policy_at_the_start(folder: Path):
    """exp(d) - 1 - d with d = reference - policy, a mean over tokens, 0.3 times it in the loss."""
    losses, groups = [], some_groups()
    for kl_coef in (0.0, 0.3):
        policy = built_policy(folder, reference=True)
        start = torch.cat(of_the_tokens(scores(policy, groups, 1.0), groups))
        with torch.no_grad():
            policy.trainable_parameters()[0].mul_(1.3)
        d = start - torch.cat(of_the_tokens(scores(policy, groups, 1.0), groups))
        losses.append(train({"team": policy}, {"team": groups}, ATGRPO(kl_coef=kl_coef)))
    expected = float((d.exp() - 1 - d).mean())
    assert expected > 0.01 and losses[1]["team/ref_kl"] == pytest.approx(expected, abs=1e-5)
    more = losses[1]["team/loss"] - losses[0]["team/loss"]
    assert more == pytest.approx(0.3 * expected, abs=1e-5)


def test_the_bonus_fades_with_the_entropy_of_all_samples_on_its_way_to_the_target(folder: Path):
    """Tokens drawn with log-prob -1 have 1 nat: a quarter of the way from 4 nats down to 0."""
    flat = group((5, 6), [candidate((7, END), 0.0), candidate((8, 9, END), 0.0)])
    policy = built_policy(folder)
    entropy = torch.cat([-(s.exp() * s).sum(-1) for s in scores(policy, [flat], 1.0)]).mean()
    algorithm = ATGRPO(entropy_coef=0.2, entropy_target=4.0)
    metrics = train({"team": policy}, {"team": [flat]}, algorithm)
    assert metrics["team/loss"] == pytest.approx(-0.2 * 0.75 * float(entropy), abs=1e-5)


def test_totals_count_more_tokens_than_a_float32_could():
    many = 2**24 + 1
    totals = Batches([], float(many), many, 3.0 * many).totals(CPU)
    assert totals.denominator == many and totals.sampled_entropy == 3.0


def test_what_an_update_learns_is_no_mismatch_of_engine_and_trainer(folder: Path):
    """A large step between two epochs moves ratios beyond 8; the engine agreed before it."""
    settings: dict[str, Any] = {"optimizer": lambda p: torch.optim.SGD(p, lr=30.0)}
    policy = built_policy(folder, max_grad_norm=1e9, **settings)
    groups = sampled_now(policy, some_groups())
    metrics = train({"team": policy}, {"team": groups}, epochs=2)
    assert metrics["team/sampling_gap"] > math.log(8)
    assert metrics["team/mismatch_frac"] == 0
    far = [x - 3 for x in groups[0].candidates[0].sampling_logprobs]
    redraw(groups[0].candidates[0], far)
    policy = built_policy(folder, **settings)
    metrics = train({"team": policy}, {"team": groups}, epochs=2)
    tokens = sum(len(c.token_ids) for g in groups for c in g.candidates)
    assert metrics["team/mismatch_frac"] == pytest.approx(len(far) / tokens)


def test_a_later_step_computes_with_the_weights_of_the_one_before_it_in_bfloat16_too(folder: Path):
    """autocast keeps its copies of weights for as long as it is on: all steps of a rollout."""

    def after(*epochs: int) -> list[Tensor]:
        policy, optimizer = built_policy(folder), torch.optim.SGD
        optimizers = {"team": optimizer(policy.trainable_parameters(), lr=1.0)}
        for count in epochs:
            with torch.autocast("cpu", torch.bfloat16):
                loop = MultiOptimizerLoop(ATGRPO(max_mismatch=None), count)
                loop.run({"team": policy}, optimizers, {"team": some_groups()}, 1.0, 0, CPU)
        return weights(policy)

    assert same(after(2), after(1, 1)) and not same(after(2), after(1))


def test_flat_groups_weigh_nothing_unless_they_are_kept(folder: Path):
    rng = random.Random(3)
    flat = [random_group(rng, flat=True, task=f"flat-{i}") for i in range(3)]
    results = {}
    for name, extra, keep in (("none", [], True), ("off", flat, False), ("kept", flat, True)):
        policy = built_policy(folder)
        before = weights(policy)
        algorithm = ATGRPO(keep_flat_groups=keep)
        metrics = train({"team": policy}, {"team": [*some_groups(), *extra]}, algorithm)
        results[name] = metrics, [a - b for a, b in zip(weights(policy), before)]
    tokens = sum(len(c.token_ids) for g in some_groups() for c in g.candidates)
    more = sum(len(c.token_ids) for g in flat for c in g.candidates)
    (plain, moved), (off, moved_off), (kept, moved_kept) = results.values()
    assert same(moved, moved_off)
    assert off["team/tokens"] == plain["team/tokens"] == tokens
    assert off["team/flat_groups"] == pytest.approx(3 / 8) and plain["team/flat_groups"] == 0
    assert kept["team/tokens"] == tokens + more
    assert kept["team/flat_groups"] == pytest.approx(3 / 8)
    assert kept["team/loss"] == pytest.approx(plain["team/loss"] * tokens / (tokens + more))
    for own, other in zip(moved, moved_kept):
        torch.testing.assert_close(own * tokens / (tokens + more), other, atol=1e-6, rtol=1e-4)


def test_failed_candidates_are_in_no_denominator(folder: Path):
    policy = built_policy(folder)
    answers = [candidate((7, END), 1.0), candidate((8, 9, END), -1.0)]
    answers.append(candidate((3, 4), 0.0, reward=None))
    metrics = train({"team": policy}, {"team": sampled_now(policy, [group((5, 6), answers)])})
    assert metrics["team/loss"] == pytest.approx((3 - 2) / 5, abs=1e-6)
    assert metrics["team/tokens"] == 5


def test_a_shared_loss_is_the_token_weighted_mean_of_two_equal_policies_losses(folder: Path):
    first, second = some_groups(1, agent="proposer"), some_groups(2, count=3, agent="planner")
    shared = train({"team": built_policy(folder)}, {"team": [*first, *second]})
    pair = {"a": built_policy(folder), "b": built_policy(folder)}
    split = train(pair, {"a": first, "b": second})
    a, b = split["a/tokens"], split["b/tokens"]
    assert a > 0 and b > 0 and a != b and shared["team/tokens"] == a + b
    for name in ("loss", "entropy", "approx_kl", "clip_frac"):
        mean = (a * split[f"a/{name}"] + b * split[f"b/{name}"]) / (a + b)
        assert shared[f"team/{name}"] == pytest.approx(mean, abs=1e-6)
    assert abs(split["a/loss"] - split["b/loss"]) > 1e-3


def test_a_step_on_one_roles_policy_leaves_the_others_bits(folder: Path):
    policies = {n: built_policy(folder, optimizer=torch.optim.AdamW) for n in "abc"}
    before = {n: weights(p) for n, p in policies.items()}
    metrics = train(policies, {"a": [], "b": some_groups(), "c": []})
    assert not same(before["b"], weights(policies["b"]))
    assert same(before["a"], weights(policies["a"])) and same(before["c"], weights(policies["c"]))
    assert [p.version for p in policies.values()] == [0, 1, 0]
    assert "b/loss" in metrics and "a/loss" not in metrics
    assert [metrics[f"{n}/flat_groups"] for n in "abc"] == [0, 0, 0]


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_a_loss_that_is_not_finite_stops_the_run_and_moves_nothing(folder: Path, bad: float):
    policy = built_policy(folder, token_budget=1)
    groups = some_groups()
    odd = groups[2].candidates[0]
    redraw(odd, (bad,) * len(odd.token_ids))
    odd.advantage = -1.0
    before = weights(policy)
    with pytest.raises(FloatingPointError, match=r"loss is (nan|inf); no step was taken"):
        train({"team": policy}, {"team": groups})
    assert same(before, weights(policy)) and policy.version == 0


def test_a_gradient_that_is_not_finite_stops_the_run(folder: Path):
    policy = built_policy(folder)
    hook = policy.trainable_parameters()[3].register_hook(lambda grad: grad * math.inf)
    before = weights(policy)
    with pytest.raises(FloatingPointError, match="grad_norm is inf; no step was taken"):
        train({"team": policy}, {"team": some_groups()})
    hook.remove()
    assert same(before, weights(policy))


@pytest.mark.parametrize("flat", [False, True])
def test_nothing_to_learn_from_is_no_step(folder: Path, flat: bool):
    policy = built_policy(folder, optimizer=torch.optim.AdamW)
    rng = random.Random(0)
    groups = [random_group(rng, flat=True)] if flat else []
    before = weights(policy)
    assert train({"team": policy}, {"team": groups}, epochs=2) == {"team/flat_groups": float(flat)}
    assert same(before, weights(policy)) and policy.version == 0


@pytest.mark.parametrize(("epochs", "minibatch", "steps"), [(1, None, 1), (3, None, 3), (2, 2, 6)])
def test_epochs_and_minibatches_decide_the_number_of_steps(
    folder: Path, epochs: int, minibatch: int | None, steps: int
):
    policy = built_policy(folder)
    train({"team": policy}, {"team": some_groups(count=5)}, None, epochs, minibatch)
    assert policy.version == steps


def test_minibatches_of_one_task_are_steps_on_each_task(folder: Path):
    """Two steps on one task each, in the drawn order, by hand."""
    groups = some_groups(count=2)
    policy = built_policy(folder)
    train({"team": policy}, {"team": groups}, minibatch_tasks=1)
    reached = []
    for order in (groups, groups[::-1]):
        other = built_policy(folder)
        for one in order:
            train({"team": other}, {"team": [one]})
        reached.append(weights(other))
    assert not same(*reached)
    assert same(weights(policy), reached[0]) or same(weights(policy), reached[1])


def test_minibatches_are_all_tasks_once_in_an_order_that_the_seed_draws():
    loop, groups = MultiOptimizerLoop(ATGRPO(), 1, 2), {"a": some_groups(count=5)}
    drawn = [loop._minibatches(groups, seed) for seed in range(6)]
    for parts in drawn:
        assert [len(part) for part in parts] == [2, 2, 1]
        assert set.union(*parts) == {f"task-{i}" for i in range(5)}
    assert loop._minibatches(groups, 0) == drawn[0] and any(d != drawn[0] for d in drawn)


def test_the_share_of_clipped_tokens_is_weighed_as_the_loss_is(folder: Path):
    """Two tokens of a gain whose ratio is far above 1.2, three of a loss below it: 0.2 of 0.5."""
    gain = candidate((7, END), 1.0, sampling_logprobs=(-20.0,) * 2, weight=0.1)
    loss = candidate((8, 9, END), -1.0, sampling_logprobs=(-20.0,) * 3, weight=0.1)
    still = candidate((3, END), 0.0, weight=0.0)
    groups = [group((5,), [gain, loss, still])]
    algorithm = ATGRPO(max_mismatch=None)
    metrics = train({"team": built_policy(folder)}, {"team": groups}, algorithm)
    assert metrics["team/clip_frac"] == pytest.approx(0.4)
    assert metrics["team/flat_groups"] == 0  # though one candidate has no advantage


def test_the_gradient_is_clipped_per_policy(folder: Path):
    policies = {
        "a": built_policy(
            folder, optimizer=lambda p: torch.optim.SGD(p, lr=1.0), max_grad_norm=0.01
        ),
        "b": built_policy(folder, optimizer=lambda p: torch.optim.SGD(p, lr=1.0)),
    }
    before = {n: weights(p) for n, p in policies.items()}
    metrics = train(policies, {"a": some_groups(), "b": some_groups()})
    moved = {
        n: math.sqrt(sum(float((x - y).pow(2).sum()) for x, y in zip(weights(p), before[n])))
        for n, p in policies.items()
    }
    assert metrics["a/grad_norm"] == metrics["b/grad_norm"] > 0.1
    assert moved["a"] == pytest.approx(0.01, rel=1e-3)
    assert moved["b"] == pytest.approx(metrics["b/grad_norm"], rel=1e-3)


def test_a_reference_stays_while_the_policy_moves(folder: Path):
    policy = built_policy(folder, reference=True)
    assert policy.reference is not None
    before = [p.clone() for p in policy.reference.parameters()]
    algorithm = ATGRPO(kl_coef=0.1)
    first = train({"team": policy}, {"team": some_groups()}, algorithm)
    second = train({"team": policy}, {"team": some_groups()}, algorithm)
    assert first["team/ref_kl"] == pytest.approx(0, abs=1e-9) and second["team/ref_kl"] > 1e-5
    assert same(before, list(policy.reference.parameters()))


class Hand(L.Callback):
    """Leaves the same experience before every step, where the rollout callback would."""

    def __init__(self, groups: list[Group]):
        self.groups, self.rates = groups, []

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        pl_module.take(rollouts_of(copy.deepcopy(self.groups)))

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
        self.rates.append({n: float(trainer.callback_metrics[f"{n}/lr"]) for n in "ab"})


def test_a_schedule_advances_once_per_rollout_step_that_taught_its_policy(
    folder: Path, tmp_path: Path
):
    """Whatever the number of minibatches, agents and epochs; not where nothing was learnt."""

    def made(scheduler: Any) -> Policy:
        adam = lambda p: torch.optim.AdamW(p, lr=1.0e-3)  # noqa: E731
        return Policy(str(folder), adam, scheduler)

    def linear(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LinearLR:
        return torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, 4)

    def halving(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.StepLR:
        return torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

    policies = {"a": made(linear), "b": made(halving), "c": made(None)}
    agents = {"proposer": "a", "planner": "a", "judge": "b", "other": "c"}
    module = TeamModule(policies, agents, ATGRPO(), epochs=2, minibatch_tasks=2)
    hand = Hand([*some_groups(1, policy="a", agent="proposer"), *some_groups(2, policy="a")])
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=4,
        logger=False,
        callbacks=[hand],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    trainer.fit(module, TaskLoader(lambda: [[]], 1))
    assert module.rollout_step == 4
    assert [p.version for p in policies.values()] == [4 * 2 * 3, 0, 0]
    assert [r["a"] for r in hand.rates] == pytest.approx([1e-3, 0.75e-3, 0.5e-3, 0.25e-3])
    assert [r["b"] for r in hand.rates] == [1e-3] * 4
    assert [float(trainer.callback_metrics[f"{n}/stepped"]) for n in "abc"] == [1, 0, 0]


def test_a_strategy_that_does_not_shard_is_refused_on_several_ranks(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """Lightning's default for two devices, DDP, would leave each rank its own gradient, unseen."""
    from teamtune import ranks

    module = TeamModule({"a": Policy(str(folder))}, {"planner": "a"}, ATGRPO())
    module.trainer = L.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    module.configure_model()
    monkeypatch.setattr(ranks, "world_size", lambda: 2)
    with pytest.raises(ConfigError, match=r"trainer.strategy: got SingleDeviceStrategy"):
        module.configure_model()


@pytest.mark.parametrize(("tasks", "world"), [(5, 2), (1, 2), (2, 3), (1000, 2), (7, 3)])
def test_ranks_share_evaluation_in_equally_many_batches(
    monkeypatch: pytest.MonkeyPatch, tasks: int, world: int
):
    """Ranks meet after each batch, so one that has fewer tasks takes empty batches along."""
    from teamtune import ranks
    from teamtune.envs import PlanPath
    from teamtune.tasks import GeneratedTasks

    env = PlanPath(size=4, first_role="none")
    data = TaskDataModule(env, GeneratedTasks(10**6), GeneratedTasks(0, tasks), val_batch_tasks=2)
    monkeypatch.setattr(ranks, "world_size", lambda: world)
    loaders = []
    for rank in range(world):
        monkeypatch.setattr(ranks, "rank", lambda rank=rank: rank)
        loaders.append([list(batch) for batch in data.val_dataloader()])
    assert len({len(batches) for batches in loaders}) == 1 and loaders[0]
    assert all(len(batch) <= 2 for batches in loaders for batch in batches)
    given = [task.id for batches in loaders for batch in batches for task in batch]
    assert sorted(given) == sorted(task.id for task in data.held_out)
