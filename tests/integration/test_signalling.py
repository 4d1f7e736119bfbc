"""A scout must say what it saw, in words that mean nothing yet: a protocol emerges in seconds."""

import itertools
from dataclasses import dataclass, replace

import pytest
import torch

from teamtune.algorithms import MAGRPO
from teamtune.envs import Environment, Outcome, Reward, Transition, check_env
from teamtune.experience import groups_of
from teamtune.inference import Sampling, TransformersEngine
from teamtune.policies import Policy, TinyLlama
from teamtune.rollout import TrajectorySampler, collect
from teamtune.seeds import derive_seed
from teamtune.tasks import Task
from teamtune.training import MultiOptimizerLoop

WORDS = ("red", "blue", "green", "white")
NOISE = "?"
"""What the actor hears where the scout said no such words."""


@dataclass(frozen=True)
class Seen:
    """A signal, what was heard of it, and whether the actor has entered something."""

    signal: str
    heard: str | None = None
    over: bool = False


class Signalling(Environment[Seen]):
    """The scout sees a signal and says words, the actor hears them and must enter the signal.

    Signals are made of the words themselves: by the code book their names. With it the scout is
    paid for every right word of the name, as the actor is for those of its entry; without it only
    the entry counts.
    """

    agents = ("scout", "actor")
    reward_range = (0.0, 1.0)

    def __init__(self, length: int, code_book: bool):
        self.length, self.code_book = length, code_book
        self.delayed = not code_book
        self.signals = [" ".join(words) for words in itertools.product(WORDS, repeat=length)]
        self.tasks = [
            Task(f"{signal}/{k}", {"signal": signal})
            for signal in self.signals
            for k in range(3 - length)
        ]

    def reset(self, task):
        return Seen(task.data["signal"])

    def acting(self, state):
        return () if state.over else ("scout",) if state.heard is None else ("actor",)

    def observe(self, state, agent):
        return [{"role": "user", "content": state.signal if agent == "scout" else state.heard}]

    async def transition(self, state, actions):
        ((agent, text),) = actions.items()
        known = text in self.signals
        pairs = zip(text.split(), state.signal.split())
        right = Reward(
            local=sum(said == seen for said, seen in pairs) / self.length if known else 0.0
        )
        malformed = () if known else (agent,)
        if agent == "actor":
            over = replace(state, over=True)
            return Transition(over, {agent: right}, True, text == state.signal, malformed)
        after = replace(state, heard=text if known else NOISE)
        reward = right if self.code_book else Reward()
        outcome = Outcome(judged=self.code_book)
        return Transition(after, {agent: reward}, malformed=malformed, outcome=outcome)

    def sample_actions(self, state, agent):
        return self.signals


def trained(env, algorithm, rate, steps, seed, folder):
    """The share of signals that a team of two untrained policies gets across after `steps`."""
    torch.set_num_threads(1)
    policy_map = {"scout": "one", "actor": "two"}
    recipe = TinyLlama([*WORDS, NOISE], 32, 1, 2, 64, context_length=8, initializer_range=0.3)
    policies, engines, optimizers = {}, {}, {}
    for i, name in enumerate(policy_map.values()):
        recipe.build(folder / name, 2 * seed + i)
        policy = policies[name] = Policy(str(folder / name))
        policy.build(None, with_reference=False)
        engines[name] = TransformersEngine(str(folder / name), Sampling(max_tokens=env.length))
        optimizers[name] = torch.optim.Adam(policy.trainable_parameters(), lr=rate)
    loop = MultiOptimizerLoop(algorithm)
    for step in range(steps):
        rollouts = collect(
            env, env.tasks, algorithm.sampler, engines, policy_map, derive_seed(seed, step)
        )
        algorithm.assign_credit(rollouts)
        groups = groups_of(rollouts)
        experience = {name: [g for g in groups if g.policy == name] for name in policies}
        loop.run(policies, optimizers, experience, 1.0, step, torch.device("cpu"))
        algorithm.advance()
        for name, policy in policies.items():
            engines[name].load_weights(policy.full_weights(), policy.version)
    once = collect(env, env.tasks, TrajectorySampler(1), engines, policy_map)
    return sum(rollout.success for rollout in once) / len(once)


@pytest.mark.parametrize("code_book", [True, False])
def test_the_game_keeps_the_contract(code_book):
    check_env(Signalling(1, code_book), Signalling(1, code_book).tasks)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_without_a_code_book_a_protocol_emerges(seed, tmp_path):
    """Four signals, one word; nobody is paid for more than the actor's success.

    The bonus keeps the team from settling on one word for two signals, from which no reward of a
    single agent's change leads away; it ends, for a protocol is certain.
    """
    algorithm = MAGRPO(num_candidates=8, entropy_coef=0.2, entropy_steps=60)
    assert trained(Signalling(1, code_book=False), algorithm, 5e-3, 80, seed, tmp_path) >= 0.9
