"""The one loop that plays episodes: ask the acting agents, play their joint actions, go on.

Samplers differ in which joint actions they play, how those reward the candidates, and which of
them go on: one (a path) or several (a tree, whose branches grow at once).
"""

import asyncio
import math
import traceback
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from teamtune.envs import Environment, Transition
from teamtune.errors import ConfigError
from teamtune.experience import Candidate, Group, GroupKey, Joint, Rollout, Score, Turn
from teamtune.inference import Completion, RolloutEngine, Sampling
from teamtune.seeds import derive_seed
from teamtune.tasks import Task

T = TypeVar("T")


class Team:
    """Who answers for which agent, and how long an environment may take for a transition."""

    def __init__(
        self,
        engines: Mapping[str, RolloutEngine],
        policy_map: Mapping[str, str],
        transition_timeout: float | None = None,
    ):
        """
        Args:
            engines: By policy.
            policy_map: From agent to policy.
            transition_timeout: In seconds; None waits for ever.
        """
        self.engines, self.policy_map = engines, policy_map
        self.transition_timeout = transition_timeout

    def of(self, agent: str) -> tuple[str, RolloutEngine]:
        """The agent's policy and that one's engine."""
        policy = self.policy_map[agent]
        return policy, self.engines[policy]


@dataclass(frozen=True)
class Game:
    """What stays the same while one task is played."""

    env: Environment[Any]
    task: Task
    team: Team
    seed: int


@dataclass(frozen=True)
class Played:
    """A joint action and the transition it caused."""

    joint: Joint
    step: Transition[Any]


class Sampler(ABC):
    """Turns a task into rollouts. Samplers hold settings only, no state."""

    num_candidates: int
    """How many candidates a task's rollouts compare with each other."""
    max_turns: int
    """How often each agent acts at most."""
    alpha: float = 1.0
    """Weight of the team reward: reward = alpha * team + local."""
    outcome: str = "success"
    """What the success of its rollouts is called; it is the policy's own only on a plain path."""

    @property
    def width(self) -> int:
        """Answers to one prompt."""
        return self.num_candidates

    def describe(self, env: Environment[Any]) -> str:
        """What a task costs, in words, where that is not plain; said before training starts."""
        return ""

    @abstractmethod
    async def sample(
        self, env: Environment[Any], task: Task, team: Team, seed: int
    ) -> list[Rollout]:
        """The rollouts of `task`; a function of its arguments, whatever else runs beside it."""

    @abstractmethod
    async def carry(
        self, game: Game, turn: Turn, played: Sequence[Played], left: int
    ) -> list[Played]:
        """The joint actions with which the episode goes on or ends, branch by branch.

        Args:
            game: What is played.
            turn: Its candidates have their scores.
            played: Those of its joint actions that were scored, none at worst.
            left: Turns after this one.
        """

    def sampling_for(self, engine: RolloutEngine) -> Sampling:
        """How `engine` is to draw tokens."""
        return engine.sampling

    def pairs(self, agents: int) -> list[tuple[int, ...]]:
        """The joint actions to play, by the indices of their candidates: the aligned ones."""
        return [(j,) * agents for j in range(self.width)]

    def score(self, turn: Turn, played: Sequence[Played]) -> list[Played]:
        """Scores the candidates, by their agents' own rewards; what counts of `played`."""
        for p in played:
            for group, j in zip(turn.groups, p.joint.picks):
                agent, candidate = group.key.agent, group.candidates[j]
                given = p.joint.rewards[agent]
                local = given.local + given.shaping
                value = self.alpha * given.team + local
                if math.isfinite(value):
                    judged, malformed = p.step.outcome.judged, agent in p.step.malformed
                    candidate.settle(Score(value, local, given.team, judged, malformed))
                else:
                    candidate.fail(f"the reward is not a finite number: {value}")
        return list(played)

    def opens(self, node: str, joint: Joint) -> str:
        """The name of the branch that a joint action opens at `node`; a path has one name."""
        return node

    async def grow(
        self, game: Game, state: Any, node: str = "", acted: Mapping[str, int] | None = None
    ) -> Turn | None:
        """The turn at `state` and everything below it; None where nobody acts any more.

        Args:
            game: What is played.
            state: Where it begins.
            node: The branch's name.
            acted: How often each agent has acted before.
        """
        acted = dict(acted or dict.fromkeys(game.env.agents, 0))
        first: Turn | None = None
        last: Joint | None = None
        while True:
            turn = await self._turn(game, state, node, acted)
            if last is not None:
                last.opens = turn
            first = first or turn
            on = [joint for joint in turn.carried if not joint.over] if turn else []
            if len(on) != 1:
                break
            (last,) = on
            state, node = last.after, self.opens(node, last)
        below = [self.grow(game, joint.after, self.opens(node, joint), acted) for joint in on]
        for joint, branch in zip(on, await together(below)):
            joint.opens = branch
        return first

    async def _turn(self, game: Game, state: Any, node: str, acted: dict[str, int]) -> Turn | None:
        """One turn, scored; counts up how often its agents have acted."""
        acting = game.env.acting(state)
        if not acting or any(acted[agent] >= self.max_turns for agent in acting):
            return None
        keys = [GroupKey(game.task.id, agent, acted[agent], node) for agent in acting]
        turn = Turn(state, await together([self.ask(game, state, key) for key in keys]))
        for agent in acting:
            acted[agent] += 1
        played = self.score(turn, await play(game, turn, self.pairs(len(acting))))
        for candidate in (c for group in turn.groups for c in group.candidates):
            if candidate.status == "unscored":
                candidate.fail("an answer beside it is missing")
        left = self.max_turns - max(acted[agent] for agent in acting)
        carried = await self.carry(game, turn, played, left)
        turn.joints = [p.joint for p in [*played, *(c for c in carried if c not in played)]]
        for p in carried:
            p.joint.carried = True
        return turn

    async def ask(self, game: Game, state: Any, key: GroupKey) -> Group:
        """A group of candidates for `key.agent` in `state`, not scored yet."""
        policy, engine = game.team.of(key.agent)
        messages = game.env.observe(state, key.agent)
        prompt_ids = engine.chat.encode(messages)
        seed = derive_seed(game.seed, key.task, key.agent, key.turn, key.node)
        sampling = self.sampling_for(engine)
        candidates = await _generated(engine, prompt_ids, self.width, sampling, seed)
        prompt = "\n".join(message["content"] for message in messages)
        return Group(key, policy, prompt, tuple(prompt_ids), candidates)


async def _generated(
    engine: RolloutEngine, prompt_ids: Sequence[int], n: int, sampling: Sampling, seed: int
) -> list[Candidate]:
    """`n` answers; failed ones where the engine raises, for it is asked no more than twice.

    This is the generation boundary: an engine's exception becomes the reason why answers failed.
    """
    why = ""
    for _ in range(2):
        try:
            completions = await engine.generate(prompt_ids, n, sampling, seed)
            return [Candidate(completion) for completion in completions]
        except ConfigError:
            raise
        except Exception as error:  # noqa: BLE001 - the generation boundary
            why = said(error)
    candidates = [Candidate(Completion((), (), "", "failed", engine.version)) for _ in range(n)]
    for candidate in candidates:
        candidate.fail(why)
    return candidates


def said(error: Exception) -> str:
    """An exception in one line, with the place where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


async def play(
    game: Game, turn: Turn, picks: Sequence[tuple[int, ...]], compared: bool = True
) -> list[Played]:
    """Plays joint actions on the turn's state; those that fail are left out.

    Equal texts are played once, for a transition is a function of state and actions. This is the
    environment boundary: an exception becomes the reason why candidates failed, never a reward;
    only a ConfigError, from an environment that can score nothing, gets through.
    """
    agents = [group.key.agent for group in turn.groups]
    teams = [[g.candidates[j] for g, j in zip(turn.groups, pick)] for pick in picks]
    answers = [_texts(team) for team in teams]
    before = game.env.potential(turn.state)

    limit = game.team.transition_timeout

    async def step(texts: Sequence[str]) -> tuple[Transition[Any], float] | Exception:
        try:
            async with asyncio.timeout(limit):
                after = await game.env.transition(turn.state, dict(zip(agents, texts)))
            return after, game.env.potential(after.state) - before + float(after.success)
        except ConfigError:
            raise
        except TimeoutError:
            return TimeoutError(f"the environment gave no answer in {limit} s")
        except Exception as error:  # noqa: BLE001 - the environment boundary
            return error

    different = [texts for texts in dict.fromkeys(answers) if texts is not None]
    found = dict(zip(different, await together([step(texts) for texts in different])))
    played = []
    for pick, team, texts in zip(picks, teams, answers):
        outcome = None if texts is None else found[texts]
        if isinstance(outcome, Exception):
            for candidate in team if compared else ():
                candidate.fail(said(outcome))
        elif outcome is not None:
            played.append(_played(pick, *outcome, compared))
    return played


async def together(parts: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """What all of them give; a single one costs no task of its own."""
    return [await parts[0]] if len(parts) == 1 else list(await asyncio.gather(*parts))


def _played(
    pick: tuple[int, ...], step: Transition[Any], progress: float, compared: bool
) -> Played:
    joint = Joint(
        picks=pick,
        after=step.state,
        rewards=step.rewards,
        progress=progress,
        success=step.success,
        levels=step.outcome.levels,
        over=step.done,
        compared=compared,
    )
    return Played(joint, step)


def _texts(team: Sequence[Candidate]) -> tuple[str, ...] | None:
    """What a joint action says; None, with the candidates told, where an answer is missing."""
    reasons = {c.completion.stop_reason for c in team}
    for candidate in team:
        if candidate.completion.stop_reason == "failed":
            candidate.fail(candidate.reason or "nothing was generated")
        elif "too_long" in reasons:
            candidate.excuse("the prompt and max_tokens exceed the context")
    return None if reasons & {"too_long", "failed"} else tuple(c.text for c in team)


def path(game: Game, first: Turn | None, episode: int = 0) -> Rollout:
    """The rollout of an episode without branches."""
    rollout = Rollout(game.task.id, first, episode=episode)
    turn, last = first, None
    while turn is not None and turn.error is None:
        (last,) = turn.carried
        rollout.success = last.success
        rollout.levels = last.levels or rollout.levels
        turn = last.opens
    if turn is not None:
        rollout.error, rollout.levels = turn.error, {}
    if first is not None and last is not None:
        change = game.env.potential(last.after) - game.env.potential(first.state)
        rollout.return_ = change + float(rollout.success)
    return rollout
