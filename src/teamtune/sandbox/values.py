"""Plain built-in values as one line of ASCII, and back, without pickle or eval.

The program's process encodes, the trusted process decodes. Numbers, text and lists are JSON; the
rest is an object with one tag. Floats travel as hexadecimal, so nothing is rounded.
"""

import json
from collections import Counter, OrderedDict, defaultdict
from decimal import Decimal
from fractions import Fraction
from typing import Any

_SMALL = 1 << 63
_VIEWS: dict[type, str] = {type(getattr({}, view)()): view for view in ("keys", "values", "items")}
_BASES: tuple[type, ...] = (
    *(bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset),
    *(Fraction, Decimal, *_VIEWS),
)
_AS_DICT = (Counter, OrderedDict, defaultdict)
_SEQUENCES: dict[type, str] = {tuple: "t", set: "s", frozenset: "z"}
_FROM_TAG = {tag: kind for kind, tag in _SEQUENCES.items()}


class Refused(ValueError):
    """A value that is no plain built-in one, or text that encodes none."""


def encode(value: Any) -> str:
    """`value` as ASCII without a line end.

    A subclass counts as its base where it inherits the base's `==` (a named tuple, an IntEnum), as
    do the dictionaries of `collections`. Raises Refused for every other type and for cycles.
    """
    try:
        return json.dumps(_pack(value), separators=(",", ":"), allow_nan=False)
    except RecursionError:
        raise Refused("nested too deeply") from None


def decode(text: str | bytes) -> Any:
    """The value that `encode` wrote. Raises Refused for anything else, and never runs code."""
    try:
        return _unpack(json.loads(text, parse_float=_no_number, parse_constant=_no_number))
    except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
        raise Refused(f"not an encoded value ({type(error).__name__})") from None


def _base(value: Any) -> type:
    kind = type(value)
    if kind in _BASES:
        return kind
    if kind in _AS_DICT:
        return dict
    for base in _BASES:
        if isinstance(value, base) and kind.__eq__ is base.__eq__:
            return base
    raise Refused(f"a value of type {kind.__name__[:60]} is not a plain built-in one")


def _pack(value: Any) -> Any:
    if value is None or value is True or value is False:
        return value
    base = _base(value)
    if base is str:
        return str.__str__(value)
    if base is int:
        return int.__int__(value) if -_SMALL < value < _SMALL else {"i": hex(value)}
    if base is float:
        return {"f": float.hex(value)}
    if base is complex:
        return {"c": [value.real.hex(), value.imag.hex()]}
    if base is bytes or base is bytearray:
        return {"b" if base is bytes else "a": base.hex(value)}
    if base is Fraction:
        return {"q": [_pack(value.numerator), _pack(value.denominator)]}
    if base is Decimal:
        return {"m": Decimal.__str__(value)}
    if base in _VIEWS:
        return {_VIEWS[base]: [_pack(item) for item in value]}
    if base is list:
        return [_pack(item) for item in list.__iter__(value)]
    if base is dict:
        return {"d": [[_pack(key), _pack(item)] for key, item in dict.items(value)]}
    items: Any = base
    return {_SEQUENCES[base]: [_pack(item) for item in items.__iter__(value)]}


def _unpack(tree: Any) -> Any:
    if tree is None or isinstance(tree, bool | int | str):
        return tree
    if isinstance(tree, list):
        return [_unpack(item) for item in tree]
    if not isinstance(tree, dict) or len(tree) != 1:
        raise Refused("an object must have one tag")
    ((tag, body),) = tree.items()
    if tag in _FROM_TAG and isinstance(body, list):
        return _FROM_TAG[tag](_unpack(item) for item in body)
    if tag == "d" and isinstance(body, list):
        return {_unpack(key): _unpack(item) for key, item in body}
    if tag == "f" and isinstance(body, str):
        return float.fromhex(body)
    if tag == "i" and isinstance(body, str):
        return int(body, 16)
    if tag == "b" and isinstance(body, str):
        return bytes.fromhex(body)
    if tag == "a" and isinstance(body, str):
        return bytearray.fromhex(body)
    if tag == "q" and isinstance(body, list) and len(body) == 2:
        return Fraction(_unpack(body[0]), _unpack(body[1]))
    if tag == "m" and isinstance(body, str):
        return Decimal(body)
    if tag in _VIEWS.values() and isinstance(body, list):
        items = [_unpack(item) for item in body]
        if tag == "keys":
            return dict.fromkeys(items).keys()
        return dict(items).items() if tag == "items" else dict(enumerate(items)).values()
    if tag == "c" and isinstance(body, list) and len(body) == 2:
        return complex(float.fromhex(body[0]), float.fromhex(body[1]))
    raise Refused(f"unknown tag {tag!r}")


def _no_number(text: str) -> Any:
    raise Refused(f"number {text[:20]!r}")
