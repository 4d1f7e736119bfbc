"""Writing as a team of two (MAGRPO): TLDR summaries and arXiv introductions, one joint reward."""

import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from teamtune.envs.prompts import folder_of
from teamtune.envs.team_work import SOLO, TeamState, TeamWork, Verdict, Workflow
from teamtune.envs.writing.reward import Band, Levels, joint_reward, words
from teamtune.envs.writing.vocabulary import TRANSITIONS
from teamtune.ranges import NonNegative, PositiveInt, PositiveShare
from teamtune.tasks import Task

MARK = "[SECOND]"
"""The line with which a single agent parts its two texts."""
_MARK_LINE = re.compile(r"^[ \t]*\[second\]", re.IGNORECASE | re.MULTILINE)
_BLANK_LINE = re.compile(r"\n\s*\n")


class Writing(TeamWork):
    """Two roles write one text each from a common source; the pair is rewarded."""

    name: ClassVar[str]
    """The folder of its prompts."""
    source: ClassVar[str]
    """The field of a task that holds the text to write about."""
    pair: ClassVar[tuple[str, str]]
    """The roles that write the first and the second text."""

    def __init__(self, levels: Levels, workflow: Workflow, prompts: str, success_share: float):
        self.levels = levels
        self.success_share = success_share
        folder = folder_of(Path(__file__).parent / "prompts" / self.name, prompts)
        super().__init__(self.pair, workflow, folder, levels.weights)

    def joint_reward(self, first: str, second: str) -> dict[str, float]:
        """What each level gives to the pair, by name, and their sum as `total`.

        It is both the reward and the metric. A level that gives 0 stops those after it; so do
        empty texts, mere punctuation and text in other scripts, at the first one.
        """
        return joint_reward(first, second, self.levels)

    def reset(self, task: Task) -> TeamState:
        """The start of a task. Raises ValueError where it has no source text."""
        text = task.data.get(self.source)
        if not isinstance(text, str) or not text.strip():
            raise ValueError(
                f"task {task.id}: {self.source!r} must be a text that is not empty, got {text!r}"
            )
        return super().reset(task)

    async def judge(self, task: Task, answers: Mapping[str, str], last: bool) -> Verdict:
        levels = self.joint_reward(*(answers[role] for role in self.pair))
        return Verdict(levels, levels["total"] >= self.success_share * self.maximum)

    def split(self, text: str) -> dict[str, str]:
        """The texts before and after a line that begins with `[SECOND]`, or else a blank line."""
        border = _MARK_LINE if _MARK_LINE.search(text) else _BLANK_LINE
        first, second = (*border.split(text.strip(), maxsplit=1), "")[:2]
        return dict(zip(self.pair, (first.strip(), second.strip())))

    def sample_actions(self, state: TeamState, agent: str) -> list[str]:
        """Made of the source's words: rich texts, thin ones, and one that both roles give."""
        source = itertools.cycle(words(state.task.data[self.source]))
        own = list(itertools.islice(source, self.levels.min_words + 16))
        more = list(itertools.islice(source, len(own) // 3))
        first = " ".join(own)
        second = " ".join([*(phrases[0] for phrases in TRANSITIONS.values()), *own, *more])
        texts = {
            self.pair[0]: [first, "too short", first],
            self.pair[1]: [second, second, first],
            SOLO: [f"{first}\n{MARK}\n{second}", first, f"{first}\n\n{first}"],
        }
        return texts[agent]


class TLDR(Writing):
    """Summaries of a forum post: one agent writes a concise summary, the other a detailed one."""

    name = "tldr"
    source = "prompt"
    pair = ("concise", "detailed")

    def __init__(
        self,
        workflow: Workflow = "parallel",
        prompts: str = "chat",
        success_share: PositiveShare = 0.85,
        min_words: PositiveInt = 8,
        max_words: PositiveInt = 256,
        length_ratio: Band = (1.1, 1.6, 3.2, 5.0),
        unique_ratio: Band = (1.3, 2.0, None, None),
        style_cap: PositiveShare = 0.03,
        weights: dict[str, NonNegative] | None = None,
    ):
        """
        Args:
            workflow: `parallel` (both at once, unseen), `single` (one agent writes both texts),
                `sequential` (the second sees the first's text) or `discussion` (both at once, then
                each revises, having seen the other's).
            prompts: `chat`, or a folder with one Jinja template per agent.
            success_share: Share of the largest joint reward from which an episode counts as solved;
                the paper draws no such line.
            min_words: Least words of either text.
            max_words: Most words of either text.
            length_ratio: Characters of the second text over those of the first: nothing up to the
                first number, full from the second to the third, nothing from the fourth on; null
                for both of the last means that more is never too much.
            unique_ratio: Different words of the second text over those of the first, likewise.
            style_cap: Jaccard similarity of the two vocabularies, stop words left out, that is
                full.
            weights: Weights of the levels structure, length_ratio, unique_ratio, style and
                coherence; null, or what is left out, is the paper's 0.5, 1.0, 0.5, 0.6, 0.4.

        Raises:
            ConfigError: A value out of its range.
        """
        levels = Levels(
            min_words, max_words, length_ratio, unique_ratio, style_cap, "second", weights or {}
        )
        super().__init__(levels, workflow, prompts, success_share)


class ArXiv(Writing):
    """An introduction from an abstract: background and motivation by one agent, method and
    implications by the other."""

    name = "arxiv"
    source = "abstract_text"
    pair = ("background", "method")

    def __init__(
        self,
        workflow: Workflow = "parallel",
        prompts: str = "chat",
        success_share: PositiveShare = 0.85,
        min_words: PositiveInt = 128,
        max_words: PositiveInt = 256,
        length_ratio: Band = (0.8, 1.3, 1.6, 2.0),
        unique_ratio: Band = (0.5, 0.7, 1.3, 1.7),
        style_cap: PositiveShare = 0.23,
        weights: dict[str, NonNegative] | None = None,
    ):
        """
        Args:
            workflow: `parallel` (both at once, unseen), `single` (one agent writes both texts),
                `sequential` (the second sees the first's text) or `discussion` (both at once, then
                each revises, having seen the other's).
            prompts: `chat`, or a folder with one Jinja template per agent.
            success_share: Share of the largest joint reward from which an episode counts as solved;
                the paper draws no such line.
            min_words: Least words of either text.
            max_words: Most words of either text.
            length_ratio: Characters of the second text over those of the first: nothing up to the
                first number, full from the second to the third, nothing from the fourth on; null
                for both of the last means that more is never too much.
            unique_ratio: Different words of the second text over those of the first, likewise.
            style_cap: Jaccard similarity of the two vocabularies, stop words left out, that is
                full.
            weights: Weights of the levels structure, length_ratio, unique_ratio, style and
                coherence; null, or what is left out, is the paper's 0.5, 1.0, 0.5, 0.6, 0.4.

        Raises:
            ConfigError: A value out of its range.
        """
        levels = Levels(
            min_words, max_words, length_ratio, unique_ratio, style_cap, "both", weights or {}
        )
        super().__init__(levels, workflow, prompts, success_share)
