"""A warm start: who is cloned on which tasks, how fast, and that it happens once."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from factories import candidate, group
from games import AGENTS, POLICIES, Game
from teamtune.algorithms import ATGRPO
from teamtune.callbacks.warm_start import Demonstration, WarmStart
from teamtune.envs import PlanPath
from teamtune.errors import ConfigError
from teamtune.experience.packing import pack
from teamtune.inference import Completion, HFChat, ScriptedEngine
from teamtune.policies import LoRA, Policy, TinyLlama
from teamtune.rollout import collect
from teamtune.tasks import GeneratedTasks, Task
from teamtune.training import Session, TeamModule
from teamtune.training.data import TaskDataModule

WORDS = [f"{agent}/{said}" for agent in AGENTS for said in ("", "x", "y")] + ["x", "y"]
RECIPE = TinyLlama(WORDS, 32, 1, 2, 64, context_length=16)


class Drawing:
    """The left agent says x, the right one draws."""

    def answer(self, env, state, agent, rng):
        return "x" if agent == "left" else rng.choice("xy")


def demonstrated(answers=1, turns=1, judge=lambda said: 0.0, seed=0, agents=AGENTS):
    """The rollout of one task, by engines that are never asked."""
    team = {agent: POLICIES[agent] for agent in agents}
    engines = dict.fromkeys(team.values(), ScriptedEngine(lambda prompt, seed: 1 / 0))
    game, sampler = Game(judge, 3, agents), Demonstration(Drawing(), answers, turns)
    return collect(game, [Task("t")], sampler, engines, team, seed)[0]


def shown(chat, prompt, answer):
    """A demonstration as the trainer sees it."""
    prompt_ids = chat.encode([{"content": prompt, "role": "user"}])
    return group(prompt_ids, [candidate(chat.encode_answer(answer))])


def test_every_agent_is_demonstrated_to_at_every_turn_and_its_first_answer_is_played():
    rollout = demonstrated(answers=5, turns=2)
    assert [g.key.turn for g in rollout.groups] == [0, 0, 1, 1]
    first, later = rollout.turns
    left, right = first.groups
    assert (left.policy, right.policy, left.prompt) == ("a", "b", "left/")
    assert left.prompt_ids == tuple(map(ord, "left/"))
    assert [c.text for c in left.candidates] == ["x"] * 5
    assert len({c.text for c in right.candidates}) == 2
    for c in (*left.candidates, *right.candidates):
        ids = (ord(c.text), 0)  # with the end
        assert c.completion == Completion(ids, (0.0, 0.0), c.text, "stop", 0)
        assert c.status == "scored"
    assert [joint.picks for joint in first.joints] == [(0, 0)]
    assert later.state == (("x", right.candidates[0].text),)


def test_what_is_drawn_follows_from_the_step_the_agent_and_the_turn():
    def drawn(seed):
        rollout = demonstrated(answers=20, turns=2, seed=seed)
        return ["".join(c.text for c in g.candidates) for g in rollout.groups[1::2]]

    assert drawn(0) == drawn(0)
    assert len({*drawn(0), *drawn(1)}) == 4


def test_a_demonstration_that_cannot_be_played_ends_the_run_with_its_reason():
    with pytest.raises(RuntimeError, match=r"task t: a demonstration could not be played: Zero.*"):
        demonstrated(judge=lambda said: 1 / 0, agents=("left",))


class Remembering(torch.optim.SGD):
    """Plain gradient descent that keeps the rates of its steps."""

    rates: list[float]

    def __init__(self, parameters):
        super().__init__(parameters, lr=0.5)
        self.rates = []

    def step(self, closure=None):
        self.rates.append(self.param_groups[0]["lr"])
        return super().step(closure)


@pytest.fixture
def started(tmp_path) -> Any:
    """From settings: the callback, its team of a trained and a frozen policy, and what was done."""
    RECIPE.build(tmp_path / "m", 0)
    policy = Policy(str(tmp_path / "m"))
    policy.build(None, with_reference=True)
    frozen = Policy(str(tmp_path / "m"), trainable=False)
    module = TeamModule({"a": policy, "b": frozen}, POLICIES, ATGRPO(kl_coef=0.1))
    engine = SimpleNamespace(chat=HFChat(str(tmp_path / "m")))
    module.session = Session(engines={"a": engine, "b": engine})
    done: Any = SimpleNamespace(asked=[], told=[], said=[], optimizers=[])
    module.report, module.print = done.told.append, done.said.append

    def tasks(start: int, count: int) -> list[Task]:
        done.asked.append((start, count))
        return [Task(f"t{start + i}") for i in range(count)]

    def optimizer(parameters: Any) -> Remembering:
        done.optimizers.append(Remembering(parameters))
        return done.optimizers[-1]

    def made(**settings: Any) -> tuple[WarmStart, Policy, Any]:
        start = WarmStart(Drawing(), optimizer=optimizer, **settings)
        done.optimizers.clear()  # of the one that only had its settings checked
        start.team = module
        start.data = SimpleNamespace(environment=Game(lambda s: 0.0, 2), training_tasks=tasks)
        return start, policy, done

    return made


def test_each_step_clones_its_own_tasks_at_a_rate_that_falls_to_nothing(started):
    start, policy, done = started(steps=5, tasks_per_step=3, max_turns=2)
    chat = start.team.engines["a"].chat
    (batch,) = pack([shown(chat, prompt, "x") for prompt in ("left/", "left/x")], 1000)
    with torch.no_grad():
        likelihood = float(policy(batch)[0].mean())
    start.on_train_start(None, start.team)
    assert done.asked == [(1_000_000_000 + 3 * step, 3) for step in range(5)]
    (own,) = done.optimizers  # nobody trains the frozen policy
    assert own.rates == pytest.approx([0.5, 0.4, 0.3, 0.2, 0.1]) and policy.version == 5
    (told,) = done.told
    assert set(told) == {"a/warm_start_loss", "time/warm_start"}
    assert 0 < told["time/warm_start"] < 60
    losses = [float(line.rpartition(" ")[2]) for line in done.said]
    assert losses[0] == pytest.approx(-likelihood, abs=1e-3)  # the left agent's, who is policy a's
    assert losses[-1] < losses[0] - 0.5 and losses == sorted(losses, reverse=True)
    assert told["a/warm_start_loss"] == pytest.approx(losses[-1], abs=1e-3)
    assert start.team.state.warm_started and start.team.phase == "warm start"
    for now, kept in zip(policy.scorer.parameters(), policy.reference.parameters()):
        assert torch.equal(now, kept)  # a KL term pulls towards where training begins
    start.on_train_start(None, start.team)
    assert len(done.asked) == 5 and policy.version == 5


@pytest.mark.parametrize(("steps", "lines"), [(11, [1, 2, 4, 6, 8, 10]), (3, [1, 2, 3])])
def test_the_first_step_and_every_fifth_part_of_it_are_told(started, steps, lines):
    start, _, done = started(steps=steps, tasks_per_step=1)
    start.on_train_start(None, start.team)
    assert [line.split()[2] for line in done.said] == [f"{n}/{steps}:" for n in lines]


def test_without_settings_it_is_64_episodes_of_four_turns_and_one_answer(started):
    start, _, _ = started(steps=1)
    sampler = start.sampler
    assert (start.tasks_per_step, sampler.num_candidates, sampler.max_turns) == (64, 1, 4)
    (group,) = WarmStart(Drawing(), 1).optimizer([torch.nn.Parameter(torch.zeros(1))]).param_groups
    assert (group["lr"], group["weight_decay"]) == (2e-3, 0.0)


def test_a_rate_that_is_not_positive_is_refused():
    with pytest.raises(ConfigError, match=r"optimizer.init_args.lr: got 0.0, allowed: more than 0"):
        WarmStart(Drawing(), 1, optimizer=lambda p: torch.optim.SGD(p, lr=0.0))


def test_a_warm_start_leaves_no_reference_without_the_adapter():
    tasks = GeneratedTasks(10**6), GeneratedTasks(0, 1)
    trainer: Any = SimpleNamespace(datamodule=TaskDataModule(PlanPath(size=4), *tasks))

    def set_up(kl_coef: float, **policies: Policy) -> WarmStart:
        start = WarmStart(Drawing(), 1)
        team = TeamModule(policies, {"planner": "a"}, ATGRPO(kl_coef=kl_coef))
        start.setup(trainer, team, "fit")
        assert start.team is team and start.data is trainer.datamodule
        return start

    set_up(0.0, a=Policy("m", lora=LoRA()), b=Policy("m"))
    set_up(0.1, a=Policy("m"))
    with pytest.raises(ConfigError, match="kl_coef: allowed with lora and a warm start: 0"):
        set_up(0.1, a=Policy("m", lora=LoRA()), b=Policy("m"))
