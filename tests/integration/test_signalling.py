"""A scout must say what it saw, in words that mean nothing yet: a protocol emerges in seconds."""

import itertools
from dataclasses import dataclass, replace

import pytest
import torch

from teamtune.algorithms import ATGRPO, MAGRPO
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

    There are as many signals as things to say. By the code book each has a name, and the scout is
    paid for every right word of it; without one only the actor's entry counts.
    """

    agents = ("scout", "actor")
    reward_range = (0.0, 1.0)

    def __init__(self, length: int, code_book: bool):
        self.length, self.code_book = length, code_book
        self.delayed = not code_book
        sayings = itertools.product(WORDS, repeat=length)
        self.names = {f"signal-{i}": " ".join(words) for i, words in enumerate(sayings)}
        self.tasks = [
            Task(f"{signal}/{k}", {"signal": signal})
            for signal in self.names
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
        malformed = () if text in self.sample_actions(state, agent) else (agent,)
        if agent == "actor":
            right = text == state.signal
            reward = {agent: Reward(local=float(right))}
            return Transition(replace(state, over=True), reward, True, right, malformed)
        after = replace(state, heard=NOISE if malformed else text)
        if not self.code_book:
            outcome = Outcome(judged=False)
            return Transition(after, {agent: Reward()}, malformed=malformed, outcome=outcome)
        pairs = zip(text.split(), self.names[state.signal].split())
        paid = 0.0 if malformed else sum(said == name for said, name in pairs) / self.length
        return Transition(after, {agent: Reward(local=paid)}, malformed=malformed)

    def sample_actions(self, state, agent):
        return list(self.names.values() if agent == "scout" else self.names)


def trained(env, algorithm, steps, seed, folder):
    """The share of signals that a team of two untrained policies gets across after `steps`."""
    torch.set_num_threads(1)
    agents = {"scout": ("one", env.length), "actor": ("two", 1)}  # and how many tokens they say
    policy_map = {agent: name for agent, (name, _) in agents.items()}
    words = [*WORDS, NOISE, *env.names]
    recipe = TinyLlama(words, 64, 1, 2, 128, context_length=8, initializer_range=0.1)
    policies, engines, optimizers, rates = {}, {}, {}, []
    for i, (name, tokens) in enumerate(agents.values()):
        recipe.build(folder / name, 2 * seed + i)
        policy = policies[name] = Policy(str(folder / name))
        policy.build(None, with_reference=False)
        engines[name] = TransformersEngine(str(folder / name), Sampling(max_tokens=tokens))
        optimizers[name] = torch.optim.Adam(policy.trainable_parameters(), lr=5e-3)
        rates.append(torch.optim.lr_scheduler.LinearLR(optimizers[name], 1.0, 0.05, steps))
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
        for rate in rates:
            rate.step()
        for name, policy in policies.items():
            engines[name].load_weights(policy.full_weights(), policy.version)
    once = collect(env, env.tasks, TrajectorySampler(1), engines, policy_map)
    return sum(rollout.success for rollout in once) / len(once)


@pytest.mark.parametrize("code_book", [True, False])
def test_the_game_keeps_the_contract(code_book):
    check_env(Signalling(1, code_book), Signalling(1, code_book).tasks)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_with_a_code_book_both_agents_learn_it(seed, tmp_path):
    """Sixteen signals, two words each; the scout is paid by the book, the actor for its entry.

    Without a bonus the scout settles on few words before it has found the others, and the actor
    on few entries while what it hears is still noise; then nothing differs within their groups.
    """
    algorithm = ATGRPO(num_candidates=32, max_turns=1, entropy_coef=0.7, entropy_steps=100)
    assert trained(Signalling(2, code_book=True), algorithm, 140, seed, tmp_path) >= 0.95


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_without_a_code_book_a_protocol_emerges(seed, tmp_path):
    """Four signals, one word; nobody is paid for more than the actor's success.

    The bonus keeps the team from settling on one word for two signals, from which no reward of a
    single agent's change leads away; it ends, for a protocol is certain.
    """
    algorithm = MAGRPO(num_candidates=8, entropy_coef=0.2, entropy_steps=60)
    assert trained(Signalling(1, code_book=False), algorithm, 80, seed, tmp_path) >= 0.9
