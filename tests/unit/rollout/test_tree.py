"""The tree sampler against rewards recomputed independently, with scripted engines."""

import asyncio
import itertools
import math
import random
from collections import Counter
from dataclasses import dataclass, replace

import pytest

from games import data, numbering, told
from teamtune.algorithms import ATGRPO
from teamtune.envs import Environment, PlanPath, Reward, Transition
from teamtune.errors import ConfigError
from teamtune.inference import ScriptedEngine
from teamtune.rollout import JointSampler, TrajectorySampler, TreeSampler, collect
from teamtune.tasks import Task

MAP = {"proposer": "team", "planner": "team"}


def moves(prompt: str, seed: int) -> str:
    return " ".join(random.Random(seed).choices("UDLR", k=3))


def boards(n, **changes):
    env = PlanPath(**{"size": 5, "first_role": "proposer", "max_moves": 4, **changes})
    return env, [env.task(seed) for seed in range(n)]


def roll(env, tasks, sampler, fn=moves, seed=0):
    return collect(
        env, tasks, sampler, {"team": ScriptedEngine(fn)}, dict.fromkeys(env.agents, "team"), seed
    )


def test_every_agent_and_turn_is_a_complete_group_on_the_state_that_was_carried_on():
    env, tasks = boards(12)
    rollouts = roll(env, tasks, TreeSampler(num_candidates=5, max_turns=3, alpha=0.5))
    assert [r.task for r in rollouts] == [t.id for t in tasks]
    assert any(r.success for r in rollouts) and not all(r.success for r in rollouts)
    for task, rollout in zip(tasks, rollouts):
        state, turns, success = env.reset(task), Counter(), False
        for group in rollout.groups:
            (agent,) = env.acting(state)
            assert (group.key.task, group.key.agent, group.key.turn) == (
                task.id,
                agent,
                turns[agent],
            )
            assert group.policy == "team"
            assert group.prompt == "\n".join(m["content"] for m in env.observe(state, agent))
            assert len(group.candidates) == 5
            steps = [asyncio.run(env.transition(state, {agent: c.text})) for c in group.candidates]
            for c, step in zip(group.candidates, steps):
                reward = step.rewards[agent]
                local = reward.local + reward.shaping
                assert (c.reward_local, c.reward_team) == (local, reward.team)
                assert c.reward == 0.5 * reward.team + local
            (chosen,) = [k for k, c in enumerate(group.candidates) if c.selected]
            assert group.candidates[chosen].reward == max(c.reward for c in group.candidates)
            state, success = steps[chosen].state, steps[chosen].success
            turns[agent] += 1
        assert rollout.success == success
        assert success or turns == {"proposer": 3, "planner": 3}
        expected = env.potential(state) - env.potential(env.reset(task)) + success
        assert rollout.return_ == pytest.approx(expected)


def test_the_second_agent_has_rewards_to_learn_from_and_prompts_change_every_turn():
    env, tasks = boards(12)
    rollouts = roll(env, tasks, TreeSampler(num_candidates=6))
    for agent in env.agents:
        groups = [g for r in rollouts for g in r.groups if g.key.agent == agent]
        assert sum(g.spread > 0 for g in groups) > len(groups) / 2
    for rollout in rollouts:
        positions = [g.prompt for g in rollout.groups]
        assert all(a != b for a, b in itertools.pairwise(positions))


def test_the_group_in_which_the_task_is_solved_is_kept_whole():
    env, tasks = boards(20)
    solved = [r for r in roll(env, tasks, TreeSampler(8)) if r.success]
    assert solved
    for rollout in solved:
        last = rollout.groups[-1]
        assert last.key.agent == "planner" and len(last.candidates) == 8
        assert any(c.reward_team == 1 for c in last.candidates)
        assert all(c.reward is not None for c in last.candidates)


def test_more_tasks_than_candidates_stay_apart():
    env, tasks = boards(9)
    together = roll(env, tasks, TreeSampler(2))
    alone = [roll(env, [task], TreeSampler(2))[0] for task in reversed(tasks)]
    assert data(together) == data(alone[::-1])


def test_the_seed_changes_samples_and_nothing_else_does():
    env, tasks = boards(3)
    first, again, other = (data(roll(env, tasks, TreeSampler(4), seed=s)) for s in (1, 1, 2))
    assert first == again
    assert first != other


@dataclass(frozen=True)
class Turn:
    """How many turns were taken and what was said."""

    said: tuple[str, ...] = ()


class Numbers(Environment[Turn]):
    """One agent says numbers; the local reward is the number, `x` breaks the environment."""

    agents = ("speaker",)

    def reset(self, task):
        return Turn()

    def acting(self, state):
        return self.agents

    def observe(self, state, agent):
        return [{"role": "user", "content": "/".join(state.said) or "start"}]

    async def transition(self, state, actions):
        text = actions["speaker"]
        return Transition(Turn((*state.said, text)), {"speaker": Reward(float(text), 10.0)})


def speak(answers, **settings):
    sampler = TreeSampler(num_candidates=len(answers), max_turns=1, **settings)
    tasks = [Task(str(i)) for i in range(400)]
    starts = {}

    def fn(prompt, seed):
        return answers[(seed - starts.setdefault("s", seed)) % len(answers)]

    def one(task, seed):
        starts.clear()
        return collect(
            Numbers(), [task], sampler, {"p": ScriptedEngine(fn)}, {"speaker": "p"}, seed
        )[0]

    return [one(task, 5) for task in tasks]


def chosen(rollouts):
    return Counter(k for r in rollouts for k, c in enumerate(r.groups[0].candidates) if c.selected)


def test_ties_are_broken_evenly():
    counts = chosen(speak(["1", "3", "3", "3"]))
    assert set(counts) == {1, 2, 3}
    assert all(95 < n < 175 for n in counts.values())  # 133 expected, standard deviation 9.4


def test_softmax_selection_draws_in_proportion_to_the_exponential():
    counts = chosen(speak(["0", "1"], select="softmax"))
    assert counts[1] / 400 == pytest.approx(0.731, abs=0.08)


def test_random_selection_ignores_rewards():
    counts = chosen(speak(["0", "9"], select="random"))
    assert counts[0] / 400 == pytest.approx(0.5, abs=0.08)


def test_a_broken_transition_is_a_failed_candidate_and_not_a_reward():
    rollout = speak(["1", "x", "3"])[0]
    one, broken, three = rollout.groups[0].candidates
    assert (broken.reward, broken.reward_local, broken.selected) == (None, None, False)
    assert "ValueError" in broken.reason
    assert (one.reward, three.reward, three.selected) == (11.0, 13.0, True)
    ATGRPO(num_candidates=3).assign_credit([rollout])
    assert broken.advantage == 0 and three.advantage == pytest.approx(0.7071, abs=1e-4)
    assert told(Numbers(), [rollout])["r/failed"] == pytest.approx(1 / 3)


def test_an_episode_in_which_everything_fails_ends_and_says_so():
    rollout = speak(["x", "x"])[0]
    assert rollout.error and not rollout.success
    assert [c.reward for c in rollout.groups[0].candidates] == [None, None]


def test_an_environment_that_can_score_nothing_ends_the_run():
    class Unable(Numbers):
        async def transition(self, state, actions):
            raise ConfigError("no sandbox here")

    engines = {"p": ScriptedEngine(lambda prompt, seed: "1")}
    with pytest.raises(ConfigError, match="no sandbox here"):
        collect(Unable(), [Task("0")], TreeSampler(2, 1), engines, {"speaker": "p"})


class Pair(Environment[Turn]):
    """Two agents speak at once; each local reward is its own number, the team's their product."""

    agents = ("left", "right")

    def reset(self, task):
        return Turn()

    def acting(self, state):
        return self.agents

    def observe(self, state, agent):
        return [{"role": "user", "content": f"{agent}:{'/'.join(state.said)}"}]

    async def transition(self, state, actions):
        left, right = int(actions["left"]), int(actions["right"])
        team = float(left * right)
        rewards = {"left": Reward(left, team), "right": Reward(right, team)}
        return Transition(Turn((*state.said, f"{left}{right}")), rewards, success=team == 12)


def pair(answers, turns=1):
    first = {}

    def fn(prompt, seed):
        agent = prompt.split(":")[0]
        start = first.setdefault(prompt, seed)
        return answers[agent][seed - start]

    sampler = TreeSampler(num_candidates=3, max_turns=turns)
    engines = {"a": ScriptedEngine(fn), "b": ScriptedEngine(fn)}
    return collect(Pair(), [Task("t")], sampler, engines, {"left": "a", "right": "b"})[0]


def test_simultaneous_agents_are_paired_candidate_by_candidate():
    rollout = pair({"left": "123", "right": "421"}, turns=2)
    left, right, later, _ = rollout.groups
    assert [c.reward_team for c in left.candidates] == [4, 4, 3]
    assert [c.reward for c in right.candidates] == [8, 6, 4]
    assert [c.selected for c in left.candidates] == [False, False, True]
    assert [c.selected for c in right.candidates] == [True, False, False]
    assert [j.compared for j in rollout.first.joints] == [True, True, True, False]
    assert later.prompt == "left:34"  # the selected joint action, which nobody sampled as a pair
    assert rollout.success  # 3 * 4 = 12
    assert {g.policy for g in rollout.groups} == {"a", "b"}
    assert later.key.turn == 1


def test_a_pair_that_nobody_sampled_fails_without_blame_for_its_parts():
    class Fragile(Pair):
        async def transition(self, state, actions):
            assert (actions["left"], actions["right"]) != ("3", "4")
            return await super().transition(state, actions)

    engines = {
        a: numbering(lambda prompt, k, said=said: said[k]) for a, said in zip("ab", ["123", "421"])
    }
    team = {"left": "a", "right": "b"}
    (rollout,) = collect(Fragile(), [Task("t")], TreeSampler(3, 1), engines, team)
    assert rollout.error == "the environment failed on the selected joint action"
    assert all(c.status == "scored" for c in rollout.candidates)


def test_only_the_best_of_several_is_not_the_policys_own_success():
    assert TreeSampler(2, 1).outcome == "success_best_of_k"
    for plain in (TreeSampler(1, 1), TreeSampler(2, 1, select="random"), JointSampler(2, 1)):
        assert plain.outcome == "success"


def test_a_failure_of_one_agent_voids_the_joint_action_for_all():
    rollout = pair({"left": "12x", "right": "421"})
    left, right = rollout.groups
    assert [c.reward is None for c in left.candidates] == [False, False, True]
    assert [c.reward is None for c in right.candidates] == [False, False, True]
    assert [c.selected for c in left.candidates] == [False, True, False]


def test_one_path_without_branches_for_evaluation():
    env, tasks = boards(5)
    rollouts = roll(env, tasks, TrajectorySampler(max_turns=2))
    assert all(
        len(g.candidates) == 1 and g.candidates[0].selected for r in rollouts for g in r.groups
    )


@pytest.mark.parametrize(
    ("policy_map", "message"),
    [
        ({"proposer": "team"}, "agent 'planner' has no policy"),
        ({"proposer": "team", "planner": "teem"}, "unknown policy 'teem' .did you mean 'team'"),
        ({**MAP, "plannr": "team"}, "unknown agent .did you mean 'planner'"),
    ],
)
def test_maps_that_do_not_fit_are_refused(policy_map, message):
    env, tasks = boards(1)
    with pytest.raises(ConfigError, match=message):
        collect(env, tasks, TreeSampler(2), {"team": ScriptedEngine(moves)}, policy_map)


def test_a_policy_that_nobody_uses_is_refused():
    env, tasks = boards(1)
    engines = {"team": ScriptedEngine(moves), "spare": ScriptedEngine(moves)}
    with pytest.raises(ConfigError, match="spare: no agent"):
        collect(env, tasks, TreeSampler(2), engines, MAP)


def test_the_algorithm_refuses_groups_without_comparison():
    with pytest.raises(ConfigError, match="2 or more"):
        ATGRPO(num_candidates=1)


def test_a_group_prints_itself():
    env, tasks = boards(1)
    group = roll(env, tasks, TreeSampler(2))[0].groups[0]
    text = str(group)
    assert "plan-path-0 | proposer | turn 0" in text
    assert all(repr(c.text) in text for c in group.candidates)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_reward_that_is_no_finite_number_is_a_failure(value):
    class Odd(Pair):
        async def transition(self, state, actions):
            step = await super().transition(state, actions)
            odd = Reward(value, 0.0) if actions["left"] == "2" else step.rewards["left"]
            return replace(step, rewards={**step.rewards, "left": odd})

    engines = {"a": numbering(lambda prompt, k: "123"[k]), "b": numbering(lambda prompt, k: "1")}
    team = {"left": "a", "right": "b"}
    (rollout,) = collect(Odd(), [Task("t")], TreeSampler(3, 1), engines, team)
    left, right = rollout.groups
    assert [c.reward for c in left.candidates] == [2.0, None, 6.0]
    assert left.candidates[1].reason == f"the reward is not a finite number: {value}"
    assert [c.selected for c in left.candidates] == [False, False, True]
    assert None not in [c.reward for c in right.candidates]


def test_agents_at_once_without_local_rewards_carry_on_the_best_scored_pair():
    class Joint(Pair):
        async def transition(self, state, actions):
            step = await super().transition(state, actions)
            team = step.rewards["left"].team
            return replace(step, rewards=dict.fromkeys(self.agents, Reward(0.0, team)))

    engines = {
        "a": numbering(lambda prompt, k: "132"[k]),
        "b": numbering(lambda prompt, k: "321"[k]),
    }
    for seed in range(5):
        (rollout,) = collect(
            Joint(), [Task("t")], TreeSampler(3, 1), engines, {"left": "a", "right": "b"}, seed
        )
        for group in rollout.groups:
            assert [c.reward for c in group.candidates] == [3.0, 6.0, 2.0]
            assert [c.selected for c in group.candidates] == [False, True, False]
