"""What passes between agents: a few words."""

import re

from teamtune.envs.answers import answer_of
from teamtune.envs.plan_path.board import Cell
from teamtune.errors import ConfigError

LETTERS = 16
"""Longest word of free text; what is longer is cut, so that no word holds a letter."""
_INTRODUCTION = re.compile(r"message\s*:", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")

Words = tuple[str, ...]


class Channel:
    """Carries at most `max_words` words of a vocabulary, or any words where there is none."""

    def __init__(self, words: list[str] | None, max_words: int):
        """
        Args:
            words: The vocabulary; None for any words.
            max_words: How many of an answer's words arrive.

        Raises:
            ConfigError: A vocabulary in which nothing could be told.
        """
        if words is not None and (len(set(words)) < 2 or any(w.split() != [w] for w in words)):
            raise ConfigError(
                f"words: got {words}, allowed: two or more different words without spaces, or null"
            )
        self.words = None if words is None else tuple(dict.fromkeys(words))
        self.max_words = max_words

    def carried(self, answer: str) -> Words | None:
        """The words that arrive, None where the answer has none, or one that is not a word.

        Thoughts, and what stands before the last `Message:`, nobody hears.
        """
        said = _INTRODUCTION.split(answer_of(answer) or "")[-1].split()
        if self.words is not None and not set(said) <= set(self.words):
            return None
        kept = ["".join(filter(str.isprintable, word))[:LETTERS] for word in said]
        return tuple(word for word in kept if word)[: self.max_words] or None


def named_cell(words: Words) -> Cell | None:
    """The cell that words name by its row and column, `2,3`; None where they name none."""
    numbers = [int(number) for number in _NUMBER.findall(" ".join(words))]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else None
