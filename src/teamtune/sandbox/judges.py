"""What must hold of a value that a program shipped; decided here, outside the program's process."""

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from teamtune.sandbox.values import decode, encode

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "Eq": operator.eq,
    "NotEq": operator.ne,
    "Lt": operator.lt,
    "LtE": operator.le,
    "Gt": operator.gt,
    "GtE": operator.ge,
    "Is": operator.is_,
    "IsNot": operator.is_not,
    "In": lambda item, items: item in items,
    "NotIn": lambda item, items: item not in items,
}
_BASE_SIZE, _SIZE_FACTOR = 1 << 16, 32
"""Longest text that is decoded: a value much larger than the expected one cannot equal it, and
decoding one that was made to be slow (sets of colliding numbers) would hold up the caller."""


class Judge(Protocol):
    """One condition on one shipped value."""

    def holds(self, value: Any) -> bool:
        """Whether it holds; raises TypeError and the like as Python's own operators do."""

    def size(self) -> int:
        """Length of the expected value, encoded."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """`value op expected`, or `expected op value`."""

    op: str
    expected: Any
    expected_first: bool = False

    def holds(self, value: Any) -> bool:
        pair = (self.expected, value) if self.expected_first else (value, self.expected)
        return bool(_OPERATORS[self.op](*pair))

    def size(self) -> int:
        return len(encode(self.expected))


@dataclass(frozen=True, slots=True)
class Truth:
    """The value is True (or False): the truth of what the program returned."""

    wanted: bool

    def holds(self, value: Any) -> bool:
        return value is self.wanted

    def size(self) -> int:
        return 5


@dataclass(frozen=True, slots=True)
class Near:
    """`abs(value - expected) < tolerance`, or `<=`."""

    expected: Any
    tolerance: Any
    op: str

    def holds(self, value: Any) -> bool:
        return bool(_OPERATORS[self.op](abs(value - self.expected), self.tolerance))

    def size(self) -> int:
        return len(encode(self.expected))


@dataclass(frozen=True, slots=True)
class IsClose:
    """`math.isclose(value, expected, rel_tol=…, abs_tol=…)`."""

    expected: Any
    rel_tol: Any = 1e-9
    abs_tol: Any = 0.0

    def holds(self, value: Any) -> bool:
        return math.isclose(value, self.expected, rel_tol=self.rel_tol, abs_tol=self.abs_tol)

    def size(self) -> int:
        return len(encode(self.expected))


def decide(judge: Judge, shipped: bytes) -> tuple[bool, str]:
    """Whether `judge` holds for the encoded value, and why not. Raises Refused for no value."""
    if len(shipped) > _BASE_SIZE + _SIZE_FACTOR * judge.size():
        return False, "the value is far larger than the expected one"
    value = decode(shipped)
    try:
        held = judge.holds(value)
    except (TypeError, ValueError, ArithmeticError, RecursionError) as error:
        return False, f"{type(error).__name__} in the comparison"
    return held, "" if held else f"got {_short(value)}"


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of more than 4300 digits
        return f"a large {type(value).__name__}"
    return text if len(text) <= 100 else text[:100] + "…"
