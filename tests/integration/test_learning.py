"""A team learns a toy from nothing in seconds: the whole chain, without Lightning around it."""

from dataclasses import dataclass, replace

import pytest
import torch

from teamtune.algorithms import ATGRPO
from teamtune.envs import Environment, Reward, Transition, check_env
from teamtune.inference import Sampling, TransformersEngine
from teamtune.policies import Policy, TinyLlama
from teamtune.rollout import TrajectorySampler, collect
from teamtune.tasks import Task
from teamtune.training import MultiOptimizerLoop

WORDS = ("a", "b", "c", "d")


@dataclass(frozen=True)
class Asked:
    """A word, and what has been said about it."""

    word: str
    said: tuple[str, ...] = ()


class Echo(Environment[Asked]):
    """The first agent repeats the word it sees, the second what the first one said."""

    agents = ("first", "second")
    reward_range = (0.0, 1.0)

    def reset(self, task):
        return Asked(task.data["word"])

    def acting(self, state):
        return self.agents[len(state.said) : len(state.said) + 1]

    def observe(self, state, agent):
        seen = state.word if agent == "first" else state.said[0]
        return [{"role": "user", "content": f"{agent} {seen if seen in WORDS else '?'}"}]

    async def transition(self, state, actions):
        ((agent, text),) = actions.items()
        wanted = state.word if agent == "first" else state.said[0]
        after = replace(state, said=(*state.said, text))
        over = agent == "second"
        rewards = {agent: Reward(local=float(text == wanted))}
        return Transition(after, rewards, over, over and after.said == (state.word,) * 2)

    def potential(self, state):
        return 0.0

    def sample_actions(self, state, agent):
        return list(WORDS)


TASKS = [Task(word, {"word": word}) for word in WORDS]


def test_the_toy_keeps_the_contract():
    check_env(Echo(), TASKS)


@pytest.mark.parametrize("names", [("both", "both"), ("one", "two")], ids=["shared", "specialized"])
def test_success_rises_from_chance_to_certainty(names, tmp_path):
    torch.set_num_threads(1)
    policy_map = dict(zip(Echo.agents, names))
    recipe = TinyLlama(["{a,b,c,d,first,second,?}"], 32, 1, 2, 64, context_length=16)
    policies, engines, optimizers = {}, {}, {}
    for seed, name in enumerate(dict.fromkeys(names)):
        recipe.build(tmp_path / name, seed)
        policy = policies[name] = Policy(str(tmp_path / name))
        policy.build(None, with_reference=False)
        engines[name] = TransformersEngine(str(tmp_path / name), Sampling(max_tokens=2))
        optimizers[name] = torch.optim.Adam(policy.trainable_parameters(), lr=5e-3)
    algorithm = ATGRPO(num_candidates=16, max_turns=1)
    loop = MultiOptimizerLoop(algorithm)

    def success():
        rollouts = collect(Echo(), TASKS, TrajectorySampler(1), engines, policy_map)
        return sum(r.success for r in rollouts) / len(TASKS)

    before = success()
    for step in range(60):
        rollouts = collect(Echo(), TASKS, algorithm.sampler, engines, policy_map, seed=step)
        groups = [group for rollout in rollouts for group in rollout.groups]
        algorithm.assign_credit(groups)
        experience = {name: [g for g in groups if g.policy == name] for name in policies}
        loop.run(policies, optimizers, experience, 1.0, step, torch.device("cpu"))
        for name, policy in policies.items():
            engines[name].load_weights(policy.full_weights(), policy.version)
    assert before <= 0.5
    assert success() == 1.0
