"""The encoding of values: exact both ways, and deaf to everything that it did not write."""

import enum
import math
from collections import Counter, OrderedDict, defaultdict, namedtuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from teamtune.sandbox.values import Refused, decode, encode

Point = namedtuple("Point", "x y")
Color = enum.IntEnum("Color", "RED")

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.text(st.characters(exclude_categories=()))
    | st.binary()
    | st.fractions()
    | st.decimals(allow_nan=False)
)
hashable = st.deferred(lambda: scalars | st.tuples(hashable, scalars) | st.frozensets(scalars))
values = st.deferred(
    lambda: (
        hashable
        | st.lists(values, max_size=3)
        | st.tuples(values, hashable)
        | st.dictionaries(hashable, values, max_size=3)
        | st.sets(hashable, max_size=3)
        | st.binary().map(bytearray)
        | st.dictionaries(hashable, hashable, max_size=3).map(lambda made: made.keys())
        | st.dictionaries(hashable, hashable, max_size=3).map(lambda made: made.items())
    )
)


def same(a, b):
    """Equal, and of the same types all the way down."""
    if type(a) is not type(b) or a != b:
        return False
    if isinstance(a, list | tuple):
        return all(map(same, a, b))
    if isinstance(a, dict):
        return all(map(same, a.values(), b.values()))
    return True


@settings(deadline=None, max_examples=60)
@given(values)
def test_a_value_comes_back_with_its_types(value):
    text = encode(value)
    assert text.isascii() and "\n" not in text
    assert same(decode(text), value)


def test_edges_of_numbers_and_text():
    for value in (10**5000, -(1 << 63), (1 << 63) - 1, -0.0, math.inf, "\ud800\0"):
        assert same(decode(encode(value)), value)


def test_a_view_of_values_equals_nothing_but_has_them():
    shipped = decode(encode({1: 2, 3: 4}.values()))
    assert type(shipped) is type({}.values()) and list(shipped) == [2, 4]


def test_not_a_number_and_the_sign_of_zero_survive():
    assert math.isnan(decode(encode(math.nan)))
    assert math.copysign(1, decode(encode(-0.0))) == -1


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Point(1, 2), (1, 2)),
        (Color.RED, 1),
        (Counter("aab"), {"a": 2, "b": 1}),
        (defaultdict(list, {1: [2]}), {1: [2]}),
        (OrderedDict(a=1), {"a": 1}),
    ],
)
def test_subclasses_that_compare_like_their_base_count_as_it(value, plain):
    assert same(decode(encode(value)), plain)


class EqualInt(int):
    def __eq__(self, other):
        return True

    __hash__ = int.__hash__


class Claims:
    @property
    def __class__(self):
        return int


@pytest.mark.parametrize(
    "value",
    [EqualInt(1), Claims(), object(), [object()], iter(()), range(3), {1: {2: print}}],
    ids=["own ==", "own class", "object", "in a list", "iterator", "range", "in a dict"],
)
def test_other_types_are_refused(value):
    with pytest.raises(Refused):
        encode(value)


def test_a_list_that_holds_itself_is_refused():
    loop = []
    loop.append(loop)
    with pytest.raises(Refused, match="nested"):
        encode(loop)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1.5",
        "NaN",
        "Infinity",
        "{}",
        '{"x":[]}',
        '{"t":[],"s":[]}',
        '{"s":[[1]]}',
        '{"d":[[1]]}',
        '{"d":[[[],1]]}',
        '{"f":1}',
        '{"f":"no"}',
        '{"i":"__import__(1)"}',
        '{"b":"zz"}',
        '{"c":["0x1"]}',
        '{"q":[1]}',
        '{"q":[1,0]}',
        '{"m":"one"}',
        '{"keys":[[]]}',
        '{"items":[[1]]}',
        "1" * 5000,
        "[" * 100_000,
        "print(1)",
        b"\xff\xfe",
    ],
)
def test_text_that_encode_never_writes_is_refused(text):
    with pytest.raises(Refused):
        decode(text)
