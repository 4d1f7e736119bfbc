"""What was sampled: records, how they are packed for the trainer, and what they tell."""

from teamtune.experience.records import (
    Candidate,
    Group,
    GroupKey,
    Joint,
    Rollout,
    Score,
    Status,
    Turn,
    count_tokens,
    groups_of,
)

__all__ = [
    "Candidate",
    "Group",
    "GroupKey",
    "Joint",
    "Rollout",
    "Score",
    "Status",
    "Turn",
    "count_tokens",
    "groups_of",
]
