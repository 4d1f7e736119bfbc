"""The one error a user is meant to read: a line that says what, got, allowed, and which key."""

import math
from collections.abc import Collection, Iterable
from difflib import get_close_matches


class ConfigError(ValueError):
    """A configuration that cannot work. The command prints it as one line and exits with code 2."""


def at_least(least: float, where: str = "", **values: float | None) -> None:
    """Raises ConfigError for the first value below `least` or not finite; None is allowed.

    Args:
        least: The smallest allowed.
        where: What the key in the message begins with.
        values: By name.
    """
    for name, value in values.items():
        if value is not None and not least <= value < math.inf:
            raise ConfigError(f"{where}{name}: got {value}, allowed: {least} or more")


def one_of(allowed: Collection[str], where: str = "", **values: str) -> None:
    """Raises ConfigError for the first value that is not allowed; `where` as in `at_least`."""
    for name, value in values.items():
        if value not in allowed:
            raise ConfigError(f"{where}{name}: got {value!r}, allowed: {', '.join(allowed)}")


def nearest(word: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)` for the known word closest to `word`, or an empty string."""
    close = get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return f" (did you mean {close[0]!r}?)" if close else ""
