"""Means over episodes: a failed one counts, and how episodes are spread over ranks does not."""

import pytest

from teamtune.rollout import Rollout
from teamtune.rollout.statistics import merged, summarize

PLAYED = Rollout("a", success=True, return_=2.0, levels={"style": 0.5, "total": 2.0})
BROKEN = Rollout("b", error="every candidate failed")
LEVELS = ("style", "total")


def test_an_episode_that_was_broken_off_earned_nothing_at_any_level():
    means = merged([summarize([PLAYED, BROKEN], "val", LEVELS)])
    assert means["val/level_style"] == 0.25 and means["val/level_total"] == 1.0
    assert means["val/broken_off"] == means["val/success"] == 0.5


def test_where_rewards_have_no_levels_none_are_told():
    assert not any("level" in name for name in summarize([BROKEN], "val"))


def test_how_episodes_are_spread_over_ranks_does_not_matter():
    episodes = [BROKEN, PLAYED, Rollout("c", levels={"style": 0.1, "total": 0.6})]
    whole = merged([summarize(episodes, "r", LEVELS)])
    for cut in (1, 2):
        parts = [summarize(part, "r", LEVELS) for part in (episodes[:cut], episodes[cut:])]
        assert merged(parts) == pytest.approx(whole)
