"""The value of an expression made of constants, worked out without running any code.

Literals, arithmetic on numbers and conversions such as `tuple([1, 2])`; sizes are bounded, since
the tests may have been written by a model and this happens in the trainer.
"""

import ast
import math
import operator
from collections.abc import Callable
from typing import Any

_MAX_ITEMS = 100_000
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
_CONVERSIONS: dict[str, Callable[..., Any]] = {
    "tuple": tuple,
    "list": list,
    "set": set,
    "frozenset": frozenset,
    "dict": dict,
    "sorted": sorted,
    "float": float,
    "int": int,
    "complex": complex,
    "str": str,
}
_NAMED = {"pi": math.pi, "e": math.e, "inf": math.inf, "nan": math.nan}


class NotConstant(ValueError):
    """An expression that needs a program, or more work than is done here."""


def constant(node: ast.expr) -> Any:
    """The value of `node`. Raises NotConstant."""
    try:
        return _value(node)
    except NotConstant:
        raise
    except (ValueError, TypeError, ArithmeticError, RecursionError, MemoryError) as error:
        raise NotConstant(str(error)[:200]) from None


def is_constant(node: ast.expr) -> bool:
    """Whether `constant` has a value for it."""
    try:
        constant(node)
    except NotConstant:
        return False
    return True


def _value(node: ast.expr) -> Any:
    match node:
        case ast.BinOp(left=left, op=op, right=right):
            return _arithmetic(op, _value(left), _value(right))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return +_value(operand)
        case ast.Tuple(elts=elts):
            return tuple(_value(item) for item in elts)
        case ast.List(elts=elts):
            return [_value(item) for item in elts]
        case ast.Set(elts=elts):
            return {_value(item) for item in elts}
        case ast.Dict(keys=keys, values=values) if None not in keys:
            return {_value(k): _value(v) for k, v in zip(keys, values) if k is not None}
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _CONVERSIONS:
            return _CONVERSIONS[name](*(_value(item) for item in args))
        case ast.Attribute(value=ast.Name(id="math"), attr=name) if name in _NAMED:
            return _NAMED[name]
        case ast.Constant(value=value) if value is not Ellipsis:
            return value
    raise NotConstant(type(node).__name__)


def _arithmetic(op: ast.operator, left: Any, right: Any) -> Any:
    """`left op right` where the result is small enough. Raises NotConstant."""
    work = _ARITHMETIC.get(type(op))
    if work is None:
        raise NotConstant(type(op).__name__)
    if isinstance(op, ast.Mod) and not _is_number(left):
        raise NotConstant("formatting")
    if isinstance(op, ast.Pow) and _is_integer(left) and _is_integer(right):
        if right < 0 or left.bit_length() * right > _MAX_BITS:
            raise NotConstant("a large power")
    elif isinstance(op, ast.Mult):
        for items, times in ((left, right), (right, left)):
            repeats = isinstance(items, str | bytes | list | tuple) and _is_integer(times)
            if repeats and _weight(items) * times > _MAX_ITEMS:
                raise NotConstant("a long repetition")
    result = work(left, right)
    if _is_integer(result) and result.bit_length() > _MAX_BITS:
        raise NotConstant("a large number")
    return result


def _weight(value: Any) -> int:
    """Items and characters altogether, those of nested lists once for each time they appear."""
    if isinstance(value, list | tuple | set | frozenset):
        return len(value) + sum(map(_weight, value))
    if isinstance(value, dict):
        return sum(_weight(key) + _weight(item) + 1 for key, item in value.items())
    return len(value) if isinstance(value, str | bytes) else 1


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | complex)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int)
