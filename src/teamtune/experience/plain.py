"""A rollout as plain data: the whole tree, for JSON files, traces and the page that shows it."""

from collections.abc import Callable, Sequence
from typing import Any

from teamtune.experience.records import Candidate, Group, Joint, Rollout, Turn

Draw = Callable[[Any], str]
"""From a state to what a person may see of it."""


def plain(rollout: Rollout, draw: Draw) -> dict[str, Any]:
    """Mappings, lists, texts and numbers alone; `turn` is the first one and holds the others."""
    return {
        "task": rollout.task,
        "episode": rollout.episode,
        "success": rollout.success,
        "return": rollout.return_,
        "levels": dict(rollout.levels),
        "error": rollout.error,
        "turn": None if rollout.first is None else _turn(rollout.first, draw),
    }


def _turn(turn: Turn, draw: Draw) -> dict[str, Any]:
    return {
        "state": draw(turn.state),
        "error": turn.error,
        "groups": [_group(group) for group in turn.groups],
        "joints": [_joint(joint, draw) for joint in turn.joints],
    }


def _group(group: Group) -> dict[str, Any]:
    return {
        "agent": group.key.agent,
        "turn": group.key.turn,
        "node": group.key.node,
        "policy": group.policy,
        "prompt": group.prompt,
        "candidates": [_candidate(candidate) for candidate in group.candidates],
    }


def _candidate(candidate: Candidate) -> dict[str, Any]:
    advantage = candidate.advantage
    return {
        "text": candidate.text,
        "tokens": len(candidate.token_ids),
        "stop_reason": candidate.completion.stop_reason,
        "status": candidate.status,
        "reason": candidate.reason,
        "reward": candidate.reward,
        "reward_local": candidate.reward_local,
        "reward_team": candidate.reward_team,
        "malformed": candidate.score is not None and candidate.score.malformed,
        "return": candidate.return_,
        "advantage": list(advantage) if isinstance(advantage, Sequence) else advantage,
        "selected": candidate.selected,
    }


def _joint(joint: Joint, draw: Draw) -> dict[str, Any]:
    return {
        "picks": list(joint.picks),
        "reward": joint.reward,
        "rewards": {a: {"local": r.local, "team": r.team} for a, r in joint.rewards.items()},
        "levels": dict(joint.levels),
        "progress": joint.progress,
        "success": joint.success,
        "kept": joint.kept,
        "compared": joint.compared,
        "carried": joint.carried,
        "after": draw(joint.after),
        "opens": None if joint.opens is None else _turn(joint.opens, draw),
    }
