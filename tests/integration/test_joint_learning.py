"""A team learns from a joint reward alone, in seconds, also from one that comes a turn later."""

from dataclasses import dataclass, replace

import pytest

from learning import learn
from teamtune.algorithms import MAGRPO
from teamtune.envs import Environment, Reward, Transition, check_env
from teamtune.tasks import Task

WORDS = ("a", "b", "c", "d")
TASKS = [Task(word, {"word": word}) for word in WORDS]


@dataclass(frozen=True)
class Asked:
    """A word, what both said about it in the first turn, and how many turns are over."""

    word: str
    said: tuple[str, ...] = ()
    turns: int = 0


class Neighbours(Environment[Asked]):
    """One agent repeats the word, the other says the next one; the last turn pays for the first."""

    agents = ("first", "second")
    reward_range = (0.0, 1.0)

    def __init__(self, turns: int):
        self.turns = turns

    def reset(self, task):
        return Asked(task.data["word"])

    def acting(self, state):
        return self.agents if state.turns < self.turns else ()

    def observe(self, state, agent):
        return [{"role": "user", "content": f"{agent} {'?' if state.said else state.word}"}]

    async def transition(self, state, actions):
        said = state.said or tuple(actions[agent] for agent in self.agents)
        after = replace(state, said=said, turns=state.turns + 1)
        wanted = state.word, WORDS[(WORDS.index(state.word) + 1) % len(WORDS)]
        right = sum(a == b for a, b in zip(said, wanted))
        over = after.turns == self.turns
        reward = Reward(team=(0.0, 0.25, 1.0)[right] if over else 0.0)
        return Transition(after, dict.fromkeys(self.agents, reward), over, over and right == 2)

    def sample_actions(self, state, agent):
        return list(WORDS)


@pytest.mark.parametrize("turns", [1, 2])
def test_the_toy_keeps_the_contract(turns):
    check_env(Neighbours(turns), TASKS)


@pytest.mark.parametrize(
    ("settings", "learns"),
    [
        ({"pairing": "cross", "num_candidates": 8}, True),
        ({"max_turns": 2, "num_candidates": 8}, True),
        ({"max_turns": 2, "num_candidates": 8, "gamma": 0.0}, False),
    ],
    ids=["one turn, cross", "two turns, aligned", "two turns, blind to the second"],
)
def test_two_policies_learn_to_complement_each_other(settings, learns, tmp_path):
    env, policy_map = Neighbours(settings.get("max_turns", 1)), {"first": "one", "second": "two"}
    _, after = learn(env, TASKS, policy_map, MAGRPO(**settings), tmp_path, 40)
    assert after == 1.0 if learns else after <= 0.5
