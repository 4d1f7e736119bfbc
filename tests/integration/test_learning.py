"""A team learns a toy from nothing in seconds: the whole chain, without Lightning around it."""

from dataclasses import dataclass, replace

import pytest

from learning import learn
from teamtune.algorithms import ATGRPO, GRPO, GiGPO
from teamtune.envs import Environment, Reward, Transition, check_env
from teamtune.tasks import Task

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
    algorithm = ATGRPO(num_candidates=16, max_turns=1)
    before, after = learn(Echo(), TASKS, dict(zip(Echo.agents, names)), algorithm, tmp_path, 60)
    assert before <= 0.5 and after == 1.0


class Counted(Echo):
    """The same, where whole episodes are told apart by how often the word was said."""

    def potential(self, state):
        return state.said.count(state.word) / 2


BONUS = {"entropy_coef": 0.1, "entropy_steps": 45}
"""Without it RLOO has tasks whose episodes have become alike before they are right."""


@pytest.mark.parametrize(
    "algorithm",
    [
        GRPO(num_candidates=16, max_turns=1, **BONUS),
        GRPO(num_candidates=16, max_turns=1, baseline="leave_one_out", scale="none", **BONUS),
        GiGPO(num_candidates=16, max_turns=1, **BONUS),
    ],
    ids=["GRPO", "RLOO", "GiGPO"],
)
def test_a_team_learns_from_whole_episodes(algorithm, tmp_path):
    check_env(Counted(), TASKS)
    policy_map = {"first": "one", "second": "two"}
    before, after = learn(Counted(), TASKS, policy_map, algorithm, tmp_path, 60)
    assert before <= 0.5 and after == 1.0
