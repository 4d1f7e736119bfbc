"""`check_env` finds every kind of broken contract."""

import random
from dataclasses import dataclass, replace

import pytest

from teamtune.envs import Environment, Outcome, Reward, Transition, check_env
from teamtune.envs.check import ContractError
from teamtune.tasks import Task


@dataclass
class Count:
    """A state; mutable on purpose, so that an environment can break the rule."""

    value: int = 0


class Counting(Environment[Count]):
    """Say `up` three times."""

    agents = ("counter",)
    reward_range = (-1.0, 1.0)

    def reset(self, task):
        return Count()

    def acting(self, state):
        return () if state.value >= 3 else self.agents

    def observe(self, state, agent):
        return [{"role": "user", "content": str(state.value)}]

    def potential(self, state):
        return state.value / 3

    async def transition(self, state, actions):
        after = replace(state, value=state.value + (actions["counter"] == "up"))
        done = after.value >= 3
        return Transition(after, {"counter": Reward(after.value - state.value)}, done, done)

    def sample_actions(self, state, agent):
        return ["up", "down"]


def breaking(**methods):
    return type("Broken", (Counting,), methods)()


async def mutates(self, state, actions):
    state.value += 1
    return Transition(state, {"counter": Reward()})


async def random_outcome(self, state, actions):
    return Transition(Count(random.randint(0, 10**9)), {"counter": Reward()})


async def crashes(self, state, actions):
    return Transition(Count({"up": 1, "down": 0}[actions["counter"]]), {"counter": Reward()})


async def huge_reward(self, state, actions):
    return Transition(state, {"counter": Reward(2.0)})


async def nan_reward(self, state, actions):
    return Transition(state, {"counter": Reward(float("nan"))})


async def stranger_paid(self, state, actions):
    return Transition(state, {"somebody": Reward()})


async def success_without_end(self, state, actions):
    return Transition(state, {"counter": Reward()}, success=True)


async def done_but_acting(self, state, actions):
    return Transition(Count(0), {"counter": Reward()}, done=True)


def test_a_sound_environment_passes():
    check_env(Counting(), [Task("a"), Task("b")])


@pytest.mark.parametrize(
    ("transition", "message"),
    [
        (mutates, "parent"),
        (random_outcome, "differ"),
        (huge_reward, "leaves"),
        (nan_reward, "leaves"),
        (stranger_paid, "acting"),
        (success_without_end, "not done"),
        (done_but_acting, "somebody acts"),
    ],
)
def test_broken_transitions_are_found(transition, message):
    with pytest.raises(ContractError, match=message):
        check_env(breaking(transition=transition), [Task("a")])


def test_a_crash_on_malformed_text_is_found():
    with pytest.raises(ContractError, match="survive"):
        check_env(breaking(transition=crashes), [Task("a")])


def test_paying_for_failure_is_found():
    generous = breaking(potential=lambda self, state: -5.0 * state.value)
    with pytest.raises(ContractError, match="outscores"):
        check_env(generous, [Task("a")])


def test_a_prompt_that_does_not_change_is_found():
    frozen = breaking(observe=lambda self, state, agent: [{"role": "user", "content": "?"}])
    with pytest.raises(ContractError, match="prompt"):
        check_env(frozen, [Task("a")])


def test_a_random_reset_is_found():
    with pytest.raises(ContractError, match="reset"):
        check_env(breaking(reset=lambda self, task: Count(random.randint(0, 10**9))), [Task("a")])


class Signal(Environment[str]):
    """A speaker names a fruit, an actor picks one: the one of the task wins.

    What the speaker says changes what the actor sees. `pay` is what it gets for its word.
    """

    agents = ("speaker", "actor")
    judged, pay = True, 0.0

    def reset(self, task):
        return f"{task.data['fruit']}"

    def acting(self, state):
        return (self.agents[min(state.count("/"), 1)],) if state.count("/") < 2 else ()

    def observe(self, state, agent):
        words = state.split("/")
        return [{"role": "user", "content": words[0 if agent == "speaker" else 1]}]

    async def transition(self, state, actions):
        ((agent, said),) = actions.items()
        said = said.replace("/", "")
        after = f"{state}/{said}"
        right = said == state.split("/")[0]
        if agent == "speaker":
            reward = Reward(local=self.pay * right)
            return Transition(after, {agent: reward}, outcome=Outcome(judged=self.judged))
        return Transition(after, {agent: Reward(team=float(right))}, True, right)

    def sample_actions(self, state, agent):
        return ["fig", "plum"]


FRUITS = [Task(fruit, {"fruit": fruit}) for fruit in ("fig", "plum")]


def test_an_agent_that_is_never_credited_is_found():
    with pytest.raises(ContractError, match="speaker is never credited"):
        check_env(Signal(), FRUITS)


def test_an_agent_that_is_paid_or_that_only_a_joint_return_can_credit_is_none():
    paid, delayed = Signal(), Signal()
    paid.pay, delayed.judged = 0.1, False
    check_env(paid, FRUITS)
    with pytest.raises(ContractError, match="not judged"):
        check_env(delayed, FRUITS)
    delayed.delayed = True
    check_env(delayed, FRUITS)


def test_no_tasks_is_an_error():
    with pytest.raises(ValueError, match="at least one"):
        check_env(Counting(), [])
