"""Two ranks (gloo, CPU) train as one process does, whatever each of them has to learn from.

All cases run in one pair of processes; every test looks at one of them.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing
import yaml
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

from factories import END, VOCABULARY, built_policy, episode, model_folder, random_group, redraw
from teamtune import ranks
from teamtune.algorithms import ATGRPO, GRPO, Algorithm, GiGPO
from teamtune.callbacks.weight_sync import WeightSyncError
from teamtune.experience import Group, Rollout, groups_of
from teamtune.policies import LoRA, Policy
from teamtune.training import MultiOptimizerLoop, Session

CPU = torch.device("cpu")
Shares = list[list[Group]]
Episodes = list[list[Rollout]]


@dataclass
class Case:
    """Each rank's groups, or the episodes to assign credit to, and how they are trained on."""

    shares: Callable[[], Shares | Episodes]
    algorithm: dict[str, Any] = field(default_factory=dict)
    kind: type[Algorithm] = ATGRPO
    epochs: int = 1
    minibatch_tasks: int | None = None
    policy: dict[str, Any] = field(default_factory=dict)


def groups(seed: int, policy: str, tasks: range, flat: bool = False) -> list[Group]:
    rng = random.Random(seed)
    agent = {"a": "proposer", "b": "planner"}[policy]
    return [
        random_group(rng, flat=flat, task=f"task-{i}", policy=policy, agent=agent) for i in tasks
    ]


def even() -> Shares:
    return [
        groups(1, "a", range(3)) + groups(2, "b", range(3)),
        groups(3, "a", range(3, 6)) + groups(4, "b", range(3, 6)),
    ]


def uneven() -> Shares:
    return [
        groups(1, "a", range(5)) + groups(2, "b", range(1)),
        groups(3, "a", range(5, 6)) + groups(4, "b", range(1, 6)),
    ]


def role_on_one_rank() -> Shares:
    return [groups(1, "a", range(3)), groups(3, "a", range(3, 6)) + groups(4, "b", range(3))]


def flat_on_one_rank() -> Shares:
    return [
        groups(1, "a", range(3)) + groups(2, "b", range(3)),
        groups(3, "a", range(3, 6)) + groups(4, "b", range(3, 6), flat=True),
    ]


def one_rank_empty() -> Shares:
    return [groups(1, "a", range(1)) + groups(2, "b", range(1)), []]


def episodes() -> Episodes:
    """Three tasks and one, four episodes each of one to three turns; prompts come back in them."""
    rng = random.Random(5)

    def said(agent: str) -> tuple[str, list[int], list[int]]:
        ids = [rng.randrange(3, VOCABULARY) for _ in range(rng.randint(0, 3))]
        return agent, [rng.randrange(3, 5)], [*ids, END]

    def played(task: str, number: int) -> Rollout:
        steps = [
            (rng.choice([-0.5, 0.0, 0.5]), [said(agent) for agent in ("left", "right")])
            for _ in range(rng.randint(1, 3))
        ]
        broke = "the environment raised" if (task, number) == ("t1", 3) else None
        return episode(number, sum(p for p, _ in steps), *steps, task=task, error=broke)

    tasks = [[played(f"t{i}", number) for number in range(4)] for i in range(4)]
    return [[*tasks[0], *tasks[1], *tasks[2]], tasks[3]]


def all_flat() -> Shares:
    return [groups(1, "a", range(2), flat=True), groups(2, "b", range(2), flat=True)]


ALL_OPTIONS = {"kl_coef": 0.1, "entropy_coef": 0.05}
CASES = {
    "even": Case(even),
    "uneven": Case(uneven),
    "uneven, small micro-batches": Case(uneven, policy={"token_budget": 25}),
    "one role on one rank": Case(role_on_one_rank),
    "one role flat on one rank": Case(flat_on_one_rank),
    "flat groups kept": Case(flat_on_one_rank, {"keep_flat_groups": True}),
    "one rank empty": Case(one_rank_empty, policy={"token_budget": 1}),
    "all flat": Case(all_flat),
    "epochs, minibatches, reference": Case(
        uneven, ALL_OPTIONS, ATGRPO, 2, 4, {"token_budget": 25, "head_chunk": 3}
    ),
    "adapters, reference": Case(
        uneven, ALL_OPTIONS, ATGRPO, 2, 4, {"token_budget": 25, "lora": LoRA(rank=2)}
    ),
    "episodes": Case(episodes, ALL_OPTIONS, GRPO, 2, 2, {"token_budget": 25}),
    "episodes, leave one out": Case(episodes, {"baseline": "leave_one_out", "scale": "none"}, GRPO),
    "episodes and steps": Case(episodes, ALL_OPTIONS, GiGPO, 2, 2, {"token_budget": 25}),
    "clipped, recomputed": Case(
        uneven, policy={"max_grad_norm": 0.05, "gradient_checkpointing": True}
    ),
}


def run(case: Case, folder: Path, share: list[Group] | list[Rollout], mesh: Any) -> dict[str, Any]:
    """Two rollout steps with AdamW: metrics, whole weights and versions."""
    algorithm = case.kind(**case.algorithm)
    groups = credited(algorithm, share)
    adam = {"optimizer": lambda p: torch.optim.AdamW(p, lr=1e-3, eps=1e-5)}
    policies = {
        name: built_policy(
            folder / name, algorithm.needs_reference, mesh, **{**adam, **case.policy}
        )
        for name in "ab"
    }
    optimizers = {n: p.optimizer_factory(p.trainable_parameters()) for n, p in policies.items()}
    loop = MultiOptimizerLoop(algorithm, case.epochs, case.minibatch_tasks)
    experience = {n: [g for g in groups if g.policy == n] for n in policies}
    metrics = [loop.run(policies, optimizers, experience, 0.9, step, CPU) for step in range(2)]
    return {
        "metrics": metrics,
        "weights": {n: dict(p.full_weights()) for n, p in policies.items()},
        "versions": {n: p.version for n, p in policies.items()},
    }


def credited(algorithm: Algorithm, share: list[Group] | list[Rollout]) -> list[Group]:
    """The groups of a share, whose credit is the algorithm's to assign where it has episodes."""
    rollouts = [r for r in share if isinstance(r, Rollout)]
    algorithm.assign_credit(rollouts)
    return [*groups_of(rollouts), *(g for g in share if isinstance(g, Group))]


def stopped(folder: Path, mesh: Any, rank: int, hang: bool = False) -> tuple[str, bool]:
    """What a rank hears when the other's loss is not finite, and whether its weights moved."""
    policy = built_policy(folder / "a", mesh=mesh)
    before = [p.full_tensor().clone() for p in policy.trainable_parameters()]
    share = groups(rank, "a", range(2))
    if rank == 1:
        bad = share[0].candidates[0]
        redraw(bad, (math.nan,) * len(bad.token_ids))
    optimizer = policy.optimizer_factory(policy.trainable_parameters())
    try:
        MultiOptimizerLoop(ATGRPO()).run({"a": policy}, {"a": optimizer}, {"a": share}, 1.0, 0, CPU)
    except FloatingPointError as error:
        after = [p.full_tensor() for p in policy.trainable_parameters()]
        return str(error), all(torch.equal(x, y) for x, y in zip(before, after))
    return "", False


def guard(folder: Path, mesh: Any, rank: int) -> list[str]:
    """The weight guard with the right weights, and with wrong ones in rank 1's engine."""
    from types import SimpleNamespace

    from teamtune.callbacks import WeightSync
    from teamtune.inference import Sampling, TransformersEngine

    policy = built_policy(folder / "chat", mesh=mesh)
    engine = TransformersEngine(str(folder / "chat"), Sampling())
    engine.load_weights(policy.full_weights(), 0)
    module: Any = SimpleNamespace(session=Session(), device=CPU)
    heard = []
    for wrong in (False, True):
        if wrong and rank == 1:
            engine.model.get_input_embeddings().weight.data += torch.randn(32) * 3
        try:
            WeightSync()._guard("a", policy, engine, module)
            heard.append("")
        except WeightSyncError as error:
            heard.append(str(error))
    return heard


def layout(folder: Path, mesh: Any) -> dict[str, Any]:
    policy = built_policy(folder / "a", reference=True, mesh=mesh)
    assert policy.reference is not None
    scorers = [*policy.scorer.parameters(), *policy.reference.parameters()]
    return {
        "sharded": all(isinstance(p, DTensor) for p in scorers),
        "dtypes": {p.dtype for p in scorers},
        "own": sum(p.to_local().numel() for p in scorers),
        "whole": sum(p.numel() for p in scorers),
    }


def bfloat16(folder: Path, mesh: Any) -> dict[str, Any]:
    policy = Policy(str(folder / "a"), lambda p: torch.optim.SGD(p, lr=0.1), max_grad_norm=1e9)
    policy.build(mesh, False, torch.bfloat16)
    share = {"a": groups(ranks.rank(), "a", range(2))}
    optimizer = policy.optimizer_factory(policy.trainable_parameters())
    metrics = MultiOptimizerLoop(ATGRPO()).run({"a": policy}, {"a": optimizer}, share, 1.0, 0, CPU)
    return {"metrics": metrics, "dtypes": {p.dtype for p in policy.trainable_parameters()}}


def worker(rank: int, folder: str) -> None:
    """Everything that two ranks do; each rank leaves its results in a file."""
    torch.set_num_threads(1)
    path = Path(folder)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    results: dict[str, Any] = {
        name: run(case, path, case.shares()[rank], mesh) for name, case in CASES.items()
    }
    results["layout"] = layout(path, mesh)
    results["bfloat16"] = bfloat16(path, mesh)
    results["stopped"] = stopped(path, mesh, rank)
    results["guard"] = guard(path, mesh, rank)
    results["ranks"] = (
        ranks.rank(),
        ranks.world_size(),
        ranks.summed(torch.tensor([1.0, rank])).tolist(),
        ranks.largest(rank - 5.0, CPU),
        ranks.gathered({"rank": rank, "uneven": "x" * rank}),
    )
    torch.save(results, path / f"rank-{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from teamtune.policies import TinyLlama

    path = tmp_path_factory.mktemp("ranks")
    model_folder(path / "a", "llama", seed=1)
    model_folder(path / "b", "qwen3", seed=2, tied=True)
    (path / "words.txt").write_text("U D L R")
    TinyLlama(str(path / "words.txt"), 32, 1, 2, 32).build(path / "chat", seed=3)
    return path


@pytest.fixture(scope="module")
def both(folder: Path) -> list[dict[str, Any]]:
    torch.multiprocessing.spawn(worker, (str(folder),), nprocs=2)
    return [torch.load(folder / f"rank-{rank}.pt", weights_only=False) for rank in range(2)]


def alone(name: str, folder: Path) -> dict[str, Any]:
    first, second = CASES[name].shares()
    return run(CASES[name], folder, first + second, None)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_two_ranks_equal_one_process(both: list[dict[str, Any]], folder: Path, name: str):
    expected = alone(name, folder)
    for rank in both:
        own = rank[name]
        assert own["versions"] == expected["versions"]
        for metrics, others in zip(own["metrics"], expected["metrics"], strict=True):
            assert metrics == pytest.approx(others, abs=1e-5)
        for policy, weights in expected["weights"].items():
            assert weights.keys() == own["weights"][policy].keys()
            for key, value in weights.items():
                torch.testing.assert_close(own["weights"][policy][key], value, atol=1e-5, rtol=0)


@pytest.mark.slow
def test_the_cases_are_what_they_say(folder: Path):
    """One process takes the steps that the comparison is about, and moves the weights."""
    assert alone("all flat", folder)["versions"] == {"a": 0, "b": 0}
    assert alone("epochs, minibatches, reference", folder)["versions"] == {"a": 8, "b": 8}
    even = alone("even", folder)
    start = dict(built_policy(folder / "a").full_weights())
    assert max((even["weights"]["a"][k] - v).abs().max() for k, v in start.items()) > 1e-3
    assert all(m[f"{n}/grad_norm"] > 0.05 for m in even["metrics"] for n in "ab")


@pytest.mark.slow
def test_every_weight_is_sharded_and_float32(both: list[dict[str, Any]]):
    for rank in both:
        found = rank["layout"]
        assert found["sharded"] and found["dtypes"] == {torch.float32}
        assert found["own"] < 0.6 * found["whole"]
    assert sum(rank["layout"]["own"] for rank in both) == both[0]["layout"]["whole"]


@pytest.mark.slow
def test_bfloat16_computes_near_float32_on_float32_masters(
    both: list[dict[str, Any]], folder: Path
):
    policy = built_policy(folder / "a")
    optimizer = policy.optimizer_factory(policy.trainable_parameters())
    share = {"a": groups(0, "a", range(2)) + groups(1, "a", range(2))}
    exact = MultiOptimizerLoop(ATGRPO()).run({"a": policy}, {"a": optimizer}, share, 1.0, 0, CPU)
    for rank in both:
        found = rank["bfloat16"]
        assert found["dtypes"] == {torch.float32}
        assert found["metrics"]["a/entropy"] == pytest.approx(exact["a/entropy"], rel=0.02)
        assert found["metrics"]["a/entropy"] != exact["a/entropy"]


@pytest.mark.slow
def test_a_loss_that_is_not_finite_on_one_rank_stops_both(both: list[dict[str, Any]]):
    for rank in both:
        assert rank["stopped"] == ("loss is nan; no step was taken", True)


@pytest.mark.slow
def test_the_weight_guard_speaks_on_all_ranks_alike(both: list[dict[str, Any]]):
    for rank in both:
        right, wrong = rank["guard"]
        assert right == "" and "the engine does not hold the policy's weights" in wrong
    assert both[0]["guard"] == both[1]["guard"]


@pytest.mark.slow
def test_what_ranks_tell_each_other(both: list[dict[str, Any]]):
    for rank, found in enumerate(both):
        everyone = [{"rank": 0, "uneven": ""}, {"rank": 1, "uneven": "x"}]
        assert found["ranks"] == (rank, 2, [2.0, 1.0], -4.0, everyone)


def test_alone_the_collectives_are_the_identity():
    assert (ranks.rank(), ranks.world_size()) == (0, 1)
    assert ranks.summed(torch.tensor([1.5])).tolist() == [1.5]
    assert ranks.largest(2.5, CPU) == 2.5 and ranks.gathered("x") == ["x"]


def test_the_overlay_names_the_strategy_and_says_what_it_is_for():
    text = (Path(__file__).parents[3] / "configs/hardware/fsdp2.yaml").read_text()
    for word in ("Purpose", "Command", "Hardware", "Time", "Expect"):
        assert f"# {word}: " in text.split("trainer:")[0]
    trainer = yaml.safe_load(text)["trainer"]
    assert trainer["strategy"]["class_path"] == "teamtune.strategies.FSDP2Strategy"
    assert trainer["devices"] == 2
