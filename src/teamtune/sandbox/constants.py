"""The value of an expression made of constants, worked out without running any code.

Literals, arithmetic on numbers and conversions such as `tuple([1, 2])`; sizes are bounded, since
the tests may have been written by a model and this happens in the caller.
"""

import ast
import math
import operator
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

_MAX_WORK = 1_000_000
"""Items and characters of all values made on the way to one, altogether."""
_MAX_BITS = 1 << 16
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_Number = int | float | complex
_Sequence = str | bytes | list | tuple
_Items = _Sequence | set | frozenset | dict
_CALLED: dict[str, tuple[Callable[..., Any], Any]] = {
    **{kind.__name__: (kind, _Items) for kind in (tuple, list, set, frozenset, dict, bytearray)},
    "sorted": (sorted, _Items),
    **{kind.__name__: (kind, _Number | str) for kind in (float, int, complex, str)},
    **{kind.__name__: (kind, _Number | str) for kind in (Fraction, Decimal)},
}
"""By name: what is called, and what its arguments may be."""
_VIEWS = {"keys": dict.keys, "values": dict.values, "items": dict.items}
_NAMED = {"pi": math.pi, "e": math.e, "inf": math.inf, "nan": math.nan}


class NotConstant(ValueError):
    """An expression that needs a program, or more work than is done here."""


class Constants:
    """The constants of one test, each worked out once."""

    def __init__(self) -> None:
        self._known: dict[ast.expr, list[Any]] = {}
        self._left = _MAX_WORK

    def value(self, node: ast.expr) -> Any:
        """The value of `node`. Raises NotConstant."""
        if node not in self._known:
            try:
                found = [self._value(node)]
                self._left -= _weight(found)
            except (ValueError, TypeError, ArithmeticError, RecursionError, MemoryError):
                found = []
            self._known[node] = found if self._left >= 0 else []
        if not self._known[node]:
            raise NotConstant(type(node).__name__)
        return self._known[node][0]

    def has(self, *nodes: ast.expr) -> bool:
        """Whether all `nodes` have values."""
        try:
            for node in nodes:
                self.value(node)
        except NotConstant:
            return False
        return True

    def _value(self, node: ast.expr) -> Any:
        value = self.value
        match node:
            case ast.Constant(value=found) if found is not Ellipsis:
                return found
            case ast.BinOp(left=left, op=op, right=right):
                return _arithmetic(op, value(left), value(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -value(operand)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return +value(operand)
            case ast.Tuple(elts=elts):
                return tuple(map(value, elts))
            case ast.List(elts=elts):
                return list(map(value, elts))
            case ast.Set(elts=elts):
                return set(map(value, elts))
            case ast.Dict(keys=keys, values=values) if None not in keys:
                return {value(k): value(v) for k, v in zip(keys, values) if k is not None}
            case ast.Attribute(value=ast.Name(id="math"), attr=name) if name in _NAMED:
                return _NAMED[name]
            case ast.Call(func=func, args=args, keywords=[]):
                return self._called(func, args)
        raise NotConstant(type(node).__name__)

    def _called(self, func: ast.expr, args: list[ast.expr]) -> Any:
        match func:
            case ast.Attribute(value=owner, attr=name) if name in _VIEWS and not args:
                return _VIEWS[name](self.value(owner))
            case ast.Attribute(value=ast.Name(id="fractions" | "decimal"), attr=name):
                name = name if name in ("Fraction", "Decimal") else ""
            case ast.Name(id=name):
                pass
            case _:
                raise NotConstant("a call")
        work, kinds = _CALLED.get(name, (None, object))
        given = [self.value(item) for item in args]
        if work is None or not all(isinstance(item, kinds) for item in given):
            raise NotConstant("a call")
        if work is Fraction and any("e" in str(item).lower() for item in given):
            raise NotConstant("an exponent")
        return work(*given)


def _arithmetic(op: ast.operator, left: Any, right: Any) -> Any:
    """`left op right` where the result is small enough. Raises NotConstant."""
    work = _ARITHMETIC.get(type(op))
    numbers = isinstance(left, _Number) and isinstance(right, _Number)
    joined = isinstance(op, ast.Add) and isinstance(left, _Sequence)
    repeated = isinstance(op, ast.Mult) and (
        _repeats(left, right) if isinstance(right, int) else _repeats(right, left)
    )
    if work is None or not (numbers or joined or repeated):
        raise NotConstant(type(op).__name__)
    powers = isinstance(op, ast.Pow) and isinstance(left, int) and isinstance(right, int)
    if powers and (right < 0 or left.bit_length() * right > _MAX_BITS):
        raise NotConstant("a large power")
    result = work(left, right)
    if isinstance(result, int) and result.bit_length() > _MAX_BITS:
        raise NotConstant("a large number")
    return result


def _repeats(items: Any, times: Any) -> bool:
    if not isinstance(items, _Sequence) or not isinstance(times, int):
        return False
    return max(1, _weight(items)) * times <= _MAX_WORK


def _weight(value: Any) -> int:
    """Items and characters altogether, those of nested lists once for each time they appear."""
    if isinstance(value, list | tuple | set | frozenset):
        return len(value) + sum(map(_weight, value))
    if isinstance(value, dict):
        return sum(_weight(key) + _weight(item) + 1 for key, item in value.items())
    return len(value) if isinstance(value, str | bytes | bytearray) else 1
