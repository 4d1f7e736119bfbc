"""The one error a user is meant to read: a line that says what, got, allowed, and which key."""

from collections.abc import Iterable
from difflib import get_close_matches


class ConfigError(ValueError):
    """A configuration that cannot work. The command prints it as one line and exits with code 2."""


def nearest(word: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)` for the known word closest to `word`, or an empty string."""
    close = get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return f" (did you mean {close[0]!r}?)" if close else ""
