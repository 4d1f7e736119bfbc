"""What was sampled: records, how they are packed for the trainer, and what they tell."""

from teamtune.experience.records import Candidate, Group, GroupKey, Joint, Rollout, count_tokens

__all__ = ["Candidate", "Group", "GroupKey", "Joint", "Rollout", "count_tokens"]
