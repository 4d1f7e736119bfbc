"""The data record: a Group of candidates is the only thing that passes from rollout to training."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class GroupKey:
    """What identifies a group. `turn` counts from 0 how often the agent has acted."""

    task: str
    agent: str
    turn: int
    node: str = ""
    """Which state of that turn, where a sampler carries on more than one branch."""


@dataclass(frozen=True)
class Joint:
    """One scored joint action of several agents."""

    node: str
    """The branch it opens: the `node` of the groups that follow it."""
    reward: float
    kept: int = 0
    """For how many turns more the reward counts, where the branch ended early."""


@dataclass
class Candidate:
    """One answer to a group's prompt.

    `token_ids` and `sampling_logprobs` have equal lengths and include the end token. `reward` is
    None where generation or scoring failed; then `reward_local` and `reward_team` are None too.
    """

    text: str
    token_ids: tuple[int, ...]
    sampling_logprobs: tuple[float, ...]
    stop_reason: str
    version: int
    reward: float | None = None
    reward_local: float | None = None
    reward_team: float | None = None
    judged: bool = True
    """False where only later steps tell what it was worth; its rewards are 0 then."""
    malformed: bool = False
    """Whether it held nothing that the environment could use."""
    selected: bool = False
    joints: tuple[Joint, ...] = ()
    """The joint actions it was part of, where agents act jointly; `reward` is their mean."""
    advantage: float | None = None
    """None until credit is assigned."""
    return_: float | None = None
    weight: float = 1.0
    """How much each of its tokens counts in the loss; an algorithm sets it with the advantage."""
    error: str | None = None
    """Why scoring failed."""
    excused: bool = False
    """Whether it has no reward because its prompt, or that of an agent beside it, had no room."""


@dataclass
class Group:
    """The candidates that answered one prompt, with identical `prompt_ids`, of one policy."""

    key: GroupKey
    policy: str
    prompt: str
    prompt_ids: tuple[int, ...]
    candidates: list[Candidate]

    @property
    def spread(self) -> float:
        """Largest minus smallest valid reward; 0 where fewer than two are valid."""
        rewards = [c.reward for c in self.candidates if c.reward is not None]
        rewards = [r for r in rewards if not math.isnan(r)]
        return max(rewards) - min(rewards) if len(rewards) > 1 else 0.0

    def __str__(self) -> str:
        branch = f" | branch {self.key.node}" if self.key.node else ""
        head = f"{self.key.task} | {self.key.agent} | turn {self.key.turn}{branch}"
        head += f" | policy {self.policy}"
        lines = [head, "  > " + self.prompt.replace("\n", "\n  > ")]
        for c in self.candidates:
            reward = "failed" if c.reward is None else f"{c.reward:+.3f}"
            credit = "" if c.advantage is None else f" A {c.advantage:+.3f}"
            mark = "*" if c.selected else " "
            lines.append(f"  {mark} {reward}{credit} [{c.stop_reason}] {c.text!r}")
        return "\n".join(lines)


@dataclass
class Rollout:
    """One task's episode: its groups in the order in which they were sampled, and the outcome."""

    task: str
    groups: list[Group] = field(default_factory=list)
    success: bool = False
    return_: float = 0.0
    """Change of the environment's potential, plus 1 if solved; JointSampler sums joint rewards."""
    error: str | None = None
    """Why the episode ended early: every candidate of a group failed."""
    levels: dict[str, float] = field(default_factory=dict)
    """Of its last reward, where the environment's rewards have levels."""

    @property
    def too_long(self) -> bool:
        """Whether a prompt left no room for an answer."""
        return any(c.stop_reason == "too_long" for g in self.groups for c in g.candidates)

    @property
    def tokens(self) -> int:
        """Generated tokens, all candidates."""
        return sum(len(c.token_ids) for g in self.groups for c in g.candidates)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "task": self.task,
            "success": self.success,
            "return": self.return_,
            "levels": self.levels,
            "error": self.error,
            "groups": [
                {
                    "agent": g.key.agent,
                    "turn": g.key.turn,
                    "node": g.key.node,
                    "policy": g.policy,
                    "prompt": g.prompt,
                    "candidates": [
                        {
                            "text": c.text,
                            "stop_reason": c.stop_reason,
                            "reward": c.reward,
                            "reward_local": c.reward_local,
                            "reward_team": c.reward_team,
                            "malformed": c.malformed,
                            "advantage": c.advantage,
                            "selected": c.selected,
                            "error": c.error,
                            "tokens": len(c.token_ids),
                        }
                        for c in g.candidates
                    ],
                }
                for g in self.groups
            ],
        }


def count_tokens(rollouts: Sequence[Rollout]) -> int:
    """Tokens that were generated for `rollouts`."""
    return sum(r.tokens for r in rollouts)
