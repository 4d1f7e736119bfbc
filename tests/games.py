"""A game of two agents that answer at once, whose rewards a test gives as a function."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from teamtune.envs import Environment, Reward, Transition
from teamtune.experience import Group, Rollout
from teamtune.experience.ledger import Ledger
from teamtune.experience.plain import plain
from teamtune.inference import ScriptedEngine
from teamtune.rollout import Sampler, collect
from teamtune.tasks import Task

Said = tuple[tuple[str, ...], ...]
"""What the agents have said, turn by turn."""
AGENTS = ("left", "right")
POLICIES = {"left": "a", "right": "b"}


class Game(Environment[Said]):
    """`judge` maps what was said to a joint reward, or to a Transition, or raises.

    It ends after `turns`. Each agent sees what it said itself.
    """

    def __init__(self, judge: Callable[[Said], Any], turns: int = 1, agents: Any = AGENTS):
        self.judge, self.turns, self.agents = judge, turns, agents

    def reset(self, task: Task) -> Said:
        return ()

    def acting(self, state: Said) -> tuple[str, ...]:
        return self.agents if len(state) < self.turns else ()

    def observe(self, state: Said, agent: str) -> list[dict[str, str]]:
        own = self.agents.index(agent)
        return [{"role": "user", "content": f"{agent}/" + "/".join(said[own] for said in state)}]

    async def transition(self, state: Said, actions: Mapping[str, str]) -> Transition[Said]:
        after = (*state, tuple(actions[agent] for agent in self.agents))
        found = self.judge(after)
        if isinstance(found, Transition):
            return found
        return won(after, found)


def won(state: Said, reward: float, agents: Any = AGENTS, **outcome: bool) -> Transition[Said]:
    """The transition that gives every agent the same joint reward."""
    return Transition(state, {agent: Reward(team=reward) for agent in agents}, **outcome)


def numbering(answer: Callable[[str, int], str] = lambda prompt, k: str(k)) -> ScriptedEngine:
    """An engine whose k-th candidate is `answer(prompt, k)`, by default its number k."""
    number: dict[tuple[str, int], int] = {}

    def fn(prompt: str, seed: int) -> str:
        k = number[prompt, seed] = number.get((prompt, seed - 1), -1) + 1
        return answer(prompt, k)

    return ScriptedEngine(fn)


def play(env: Environment[Any], sampler: Sampler, answer: Any = None, seed: int = 0) -> Rollout:
    """One task `t`, with an engine per agent, the k-th answers numbered unless given."""
    engine = numbering(answer) if answer else numbering()
    policies = dict(zip(env.agents, "abc"))
    return collect(
        env, [Task("t")], sampler, dict.fromkeys(policies.values(), engine), policies, seed
    )[0]


def told(env: Environment[Any], rollouts: Sequence[Rollout]) -> dict[str, float]:
    """What a ledger tells of them, under `r/`."""
    ledger = Ledger("r", env)
    ledger.book(rollouts, 1.0)
    return ledger.close()


def data(rollouts: Sequence[Rollout]) -> list[dict[str, Any]]:
    """Whole rollouts, states and all, as values that can be compared."""
    return [plain(rollout, repr) for rollout in rollouts]


def failing(*broken: tuple[str, int]) -> Callable[[str, int], str]:
    """Numbers, but no answer for the (agent, number) pairs in `broken`."""

    def answer(prompt: str, k: int) -> str:
        if (prompt.split("/")[0], k) in broken:
            raise RuntimeError
        return str(k)

    return answer


def by_place(groups: list[Group]) -> dict[tuple[str, int, str], Group]:
    """The groups by agent, turn and node; no two share one."""
    found = {(g.key.agent, g.key.turn, g.key.node): g for g in groups}
    assert len(found) == len(groups)
    return found
