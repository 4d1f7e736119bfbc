"""GRPO and GiGPO over whole episodes: values worked out by hand, and the laws of comparison."""

import copy
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from factories import END, Said, built_policy, episode, model_folder, redraw
from learning import close, update
from teamtune.algorithms import GRPO, GiGPO
from teamtune.algorithms.credit import discounted_returns
from teamtune.algorithms.losses import clipped_surrogate
from teamtune.envs import PlanPath
from teamtune.errors import ConfigError
from teamtune.experience import Group, GroupKey, Rollout, groups_of
from teamtune.experience.packing import pack
from teamtune.inference import ScriptedEngine
from teamtune.policies import Policy
from teamtune.rollout import TrajectorySampler, collect

ONE: Said = ("left", (7,), (3, END))


def advantages(rollout: Rollout) -> list[Any]:
    return [c.advantage for c in rollout.candidates]


def weights(rollout: Rollout) -> list[float]:
    return [c.weight for c in rollout.candidates]


@pytest.mark.parametrize(
    ("options", "returns", "expected"),
    [
        ({}, [1, 0, 0, 1], [0.866025, -0.866025, -0.866025, 0.866025]),
        ({"scale": "none"}, [1, 0, 0, 1], [0.5, -0.5, -0.5, 0.5]),
        # others' means: (0 + 3) / 2, (1 + 3) / 2, (1 + 0) / 2
        ({"scale": "none", "baseline": "leave_one_out"}, [1, 0, 3], [-0.5, -2.0, 2.5]),
        # the same over the standard deviation (7 / 3) ** 0.5
        ({"baseline": "leave_one_out"}, [1, 0, 3], [-0.327327, -1.309307, 1.636634]),
        ({}, [0.3, 0.3], [0.0, 0.0]),
    ],
)
def test_the_returns_of_a_tasks_episodes_are_compared(options, returns, expected):
    episodes = [episode(k, r) for k, r in enumerate(returns)]
    GRPO(**options).assign_credit(episodes)
    assert [a for e in episodes for a in advantages(e)] == pytest.approx(expected, abs=1e-6)
    assert [c.return_ for e in episodes for c in e.candidates] == returns


def test_every_answer_of_an_episode_gets_its_advantage_whoever_gave_it():
    both = [("left", (7,), (3, END)), ("right", (8,), (4, 5, END))]
    long = episode(0, 2.0, (1.0, both), (1.0, both), (0.0, [ONE]))
    short = episode(1, 0.0, (0.0, both))
    GRPO(scale="none").assign_credit([long, short])
    assert advantages(long) == [1.0] * 5 and advantages(short) == [-1.0] * 2


def test_tasks_are_compared_apart():
    rollouts = [episode(k, r, task=task) for task in "tu" for k, r in enumerate([1.0, 3.0])]
    rollouts[0].return_ = -5.0
    GRPO(scale="none").assign_credit(rollouts)
    assert [a for r in rollouts for a in advantages(r)] == [-4.0, 4.0, -1.0, 1.0]


@pytest.mark.parametrize("algorithm", [GRPO(), GiGPO()])
def test_an_episode_that_broke_off_is_compared_with_nothing_and_trains_nothing(algorithm):
    returns = [1.0, 99.0, 0.0, 1.0]
    episodes = [episode(k, r) for k, r in enumerate(returns)]
    episodes[1] = episode(1, 99.0, (99.0, [ONE]), (0.0, [ONE]), error="it broke")
    GRPO().assign_credit(episodes)
    found = [advantages(e)[0] for e in episodes]
    assert found == pytest.approx([0.57735, 0.0, -1.154701, 0.57735], abs=1e-5)
    assert advantages(episodes[1]) == [0.0, 0.0] and weights(episodes[1]) == [0.0, 0.0]
    assert [c.return_ for c in episodes[1].candidates] == [None, None]
    kept = algorithm.trainable(groups_of(episodes))
    assert {g.key.node for g in kept} == {"#0", "#2", "#3"} and algorithm.denominator(kept) == 3


def test_each_episode_counts_the_same_however_many_turns_it_has():
    """Of each policy's tokens in an episode the weights sum to 1."""
    both = [("left", (7,), (3, END)), ("right", (8,), (4, 5, END))]
    long = episode(0, 1.0, (1.0, both), (0.0, [("left", (9,), (3, 3, END))]))
    short = episode(1, 0.0)
    algorithm = GRPO()
    algorithm.assign_credit([long, short])
    # left has 2 + 3 tokens, right 3
    assert weights(long) == pytest.approx([1 / 5, 1 / 3, 1 / 5]) and weights(short) == [1 / 2]
    of_left = [g for g in groups_of([long, short]) if g.policy == "a"]
    assert algorithm.denominator(of_left) == 2


def test_episodes_of_equal_returns_weigh_nothing_and_count_in_the_mean():
    flat, better = [episode(k, 1.0) for k in range(2)], episode(0, 0.0, task="u")
    rollouts = [*flat, better, episode(1, 1.0, task="u")]
    for options in ({}, {"kl_coef": 0.1}, {"entropy_coef": 0.1}):
        algorithm = GRPO(**options)
        algorithm.assign_credit(rollouts)
        assert [w for r in flat for w in weights(r)] == [0.0] * 2
        assert weights(better) == [0.5]
        groups = groups_of(rollouts)
        assert algorithm.denominator(algorithm.trainable(groups)) == 4


def test_discounted_returns():
    assert discounted_returns([1.0, 0.0, 2.0], 0.5) == [1.5, 1.0, 2.0]
    assert discounted_returns([], 0.5) == []


def anchored(**options: Any) -> list[list[float]]:
    """Advantages of two episodes in which an agent meets the prompt (7,) three times."""
    first = episode(0, 1.0, (0.0, [ONE]), (1.0, [("left", (8,), (3, END))]))
    second = episode(1, 0.25, (0.25, [ONE, ("right", (7,), (4, END))]), (0.0, [ONE]))
    GiGPO(**{"scale": "none", "gamma": 0.5, **options}).assign_credit([first, second])
    return [advantages(first), advantages(second)]


def test_steps_from_one_prompt_are_compared_by_what_was_earned_from_there():
    # later progress: 0 + 0.5 * 1 and 1; 0.25 + 0.5 * 0 and 0
    # left met (7,) with 0.5, 0.25 and 0, mean 0.25; (8,) once; right's (7,) is another anchor
    # returns 1 and 0.25 of mean 0.625
    first, second = anchored(omega=2.0)
    assert first == pytest.approx([0.375 + 2 * 0.25, 0.375])
    assert second == pytest.approx([-0.375, -0.375, -0.375 - 2 * 0.25])


def test_steps_are_scaled_and_compared_as_episodes_are():
    first, second = anchored(scale="std", omega=1.0)
    # returns: +-0.375 / 0.530330; steps 0.25, 0, -0.25 over their deviation 0.25
    assert first == pytest.approx([0.707107 + 1, 0.707107], abs=1e-5)
    assert second == pytest.approx([-0.707107, -0.707107, -0.707107 - 1], abs=1e-5)
    first, second = anchored(baseline="leave_one_out")
    # others' means of returns 0.25 and 1; of steps 0.125, 0.25 and 0.375
    assert first == pytest.approx([0.75 + 0.375, 0.75])
    assert second == pytest.approx([-0.75, -0.75, -0.75 - 0.375])


def test_without_weight_on_steps_it_is_grpo():
    plain = played()
    with_steps = copy.deepcopy(plain)
    GRPO().assign_credit(plain)
    GiGPO(omega=0.0).assign_credit(with_steps)
    assert plain_credit(plain) == plain_credit(with_steps)
    GiGPO(omega=1.0).assign_credit(with_steps)
    assert plain_credit(plain) != plain_credit(with_steps)


def test_steps_of_other_tasks_and_of_broken_episodes_are_no_anchors():
    episodes = [episode(k, r, task=task) for task in "tu" for k, r in enumerate([1.0, 3.0])]
    broken = episode(2, 0.0, (99.0, [ONE]), (0.0, [ONE]), error="it broke")
    GiGPO(scale="none").assign_credit([*episodes, broken])
    assert [a for e in episodes for a in advantages(e)] == [-2.0, 2.0] * 2
    assert advantages(broken) == [0.0, 0.0]


def played(tasks: int = 3, seed: int = 0) -> list[Rollout]:
    """Three sampled episodes of each of some boards."""
    env = PlanPath(size=5, first_role="proposer", max_moves=3)
    engine = ScriptedEngine(lambda p, s: " ".join(random.Random(f"{p}{s}").choices("UDLR", k=2)))
    team = {"proposer": "a", "planner": "b"}
    boards = [env.task(k) for k in range(tasks)]
    sampler = TrajectorySampler(3, 2)
    return collect(env, boards, sampler, {"a": engine, "b": engine}, team, seed)


def plain_credit(rollouts: Sequence[Rollout]) -> dict[GroupKey, tuple[Any, ...]]:
    return {
        g.key: tuple((c.return_, c.advantage, c.weight) for c in g.candidates)
        for g in groups_of(rollouts)
    }


@pytest.mark.parametrize("algorithm", [GRPO(), GiGPO()])
def test_permuting_rollouts_permutes_credit(algorithm):
    rollouts = played()
    algorithm.assign_credit(rollouts)
    expected = plain_credit(rollouts)
    assert len({advantage for ((_, advantage, _),) in expected.values()}) > 3
    for seed in range(3):
        random.Random(seed).shuffle(rollouts)
        algorithm.assign_credit(rollouts)
        found = plain_credit(rollouts)
        assert found.keys() == expected.keys()
        for key, ((return_, advantage, weight),) in found.items():
            assert (return_, weight) == (expected[key][0][0], expected[key][0][2])
            assert advantage == pytest.approx(expected[key][0][1], abs=1e-12)


@pytest.mark.parametrize("algorithm", [GRPO(), GiGPO()])
def test_a_rank_that_has_some_of_the_tasks_gives_them_the_same_credit(algorithm):
    rollouts = played()
    algorithm.assign_credit(rollouts)
    expected = plain_credit(rollouts)
    parts = rollouts[:3], rollouts[3:]
    for part in parts:
        algorithm.assign_credit(part)
    assert plain_credit(rollouts) == expected
    groups = [groups_of(part) for part in (rollouts, *parts)]
    whole, *shares = (algorithm.denominator(algorithm.trainable(g)) for g in groups)
    assert whole == sum(shares) == 9


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("model"))


def random_episodes(task: str, seed: int) -> list[Rollout]:
    """Three episodes of one to three turns, both agents in each, with random ids and returns."""
    rng = random.Random(seed)

    def ids(least: int, most: int) -> tuple[int, ...]:
        return tuple(rng.randrange(3, 29) for _ in range(rng.randint(least, most)))

    def step() -> tuple[float, list[Said]]:
        return rng.uniform(-1, 1), [
            (agent, ids(1, 4), (*ids(0, 4), END)) for agent in ("left", "right")
        ]

    made = [
        episode(k, rng.uniform(-1, 1), *(step() for _ in range(rng.randint(1, 3))), task=task)
        for k in range(3)
    ]
    for c in (c for rollout in made for c in rollout.candidates):
        redraw(c, [-3.0] * len(c.token_ids))  # about what a policy says that knows nothing
    return made


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def test_the_loss_is_a_token_mean_per_episode_and_a_mean_of_episodes(folder):
    rollouts = [r for i in range(2) for r in random_episodes(f"t{i}", i)]
    policies = {name: built_policy(folder) for name in "ab"}
    GRPO().assign_credit(rollouts)

    def tokens(policy: Policy, rollout: Rollout, name: str) -> list[float]:
        found: list[float] = []
        for g in rollout.groups:
            if g.policy == name:
                (c,) = g.candidates
                (batch,) = pack([Group(g.key, name, "", g.prompt_ids, [c])], 10**9)
                terms = (policy(batch)[0], batch.sampling_logprobs, batch.advantages)
                found += clipped_surrogate(*terms, 0.2, 0.2).tolist()
        return found

    expected = {
        name: mean([mean(tokens(policy, rollout, name)) for rollout in rollouts])
        for name, policy in policies.items()
    }
    metrics, _ = update(policies, rollouts, GRPO(max_mismatch=None))
    assert abs(expected["a"] - expected["b"]) > 0.001
    for name in "ab":
        assert metrics[f"{name}/loss"] == pytest.approx(expected[name], abs=1e-5)


@pytest.mark.parametrize("algorithm", [GRPO(), GiGPO(), GRPO(kl_coef=0.5)])
def test_the_gradient_is_that_of_all_tasks_together_or_apart(folder, algorithm):
    """As on ranks: each part's gradient, weighted by its share of the denominator, adds up."""
    parts = [random_episodes("t0", 0), random_episodes("t1", 1) + random_episodes("t2", 2)]

    def moved(rollouts: Sequence[Rollout], budget: int = 10**9) -> list[torch.Tensor]:
        policies = {
            name: built_policy(folder, reference=True, token_budget=budget) for name in "ab"
        }
        return update(policies, copy.deepcopy(rollouts), algorithm)[1][0]

    whole = moved([r for part in parts for r in part])
    assert max(float(m.abs().max()) for m in whole) > 1e-3
    one, two = map(moved, parts)
    close(whole, [a / 3 + b * 2 / 3 for a, b in zip(one, two)])
    close(whole, moved([r for part in parts for r in part], 10))


def test_options_reach_the_sampler_and_one_episode_has_nothing_to_be_compared_with():
    algorithm = GiGPO(num_candidates=8, max_turns=3, clip_low=0.1, kl_coef=0.2)
    assert (algorithm.sampler.num_candidates, algorithm.sampler.max_turns) == (8, 3)
    assert (algorithm.clip_low, algorithm.needs_reference) == (0.1, True)
    with pytest.raises(ConfigError, match="num_candidates: got 1, allowed: 2 or more"):
        GRPO(num_candidates=1)
    with pytest.raises(ConfigError, match="entropy_target: no effect with entropy_coef 0"):
        GRPO(entropy_target=0.3)
