"""The private channel: what is read from it, and what makes all of it count for nothing."""

import pytest

from teamtune.sandbox.transcript import Forged, read_transcript


def test_an_honest_child():
    data = b'loaded\nvalue {"t":[1]}\nraised memory "line 1: MemoryError"\nvalue 2\ndone\n'
    found = read_transcript(data, 3)
    assert found.done
    assert [step.kind for step in found.steps] == ["loaded", "value", "raised", "value"]
    assert found.steps[1].payload == b'{"t":[1]}'
    assert (found.steps[2].memory, found.steps[2].error) == (True, "line 1: MemoryError")


@pytest.mark.parametrize(
    ("data", "steps"),
    [
        (b"", 0),
        (b"load", 0),
        (b"loaded\n", 1),
        (b"loaded\nvalue 1\nval", 2),
        (b'raised error "x"\n', 1),
        (b"loaded\nvalue 1\nvalue 2\ndon", 3),
    ],
)
def test_a_child_that_was_killed_midway(data, steps):
    found = read_transcript(data, 2)
    assert not found.done and len(found.steps) == steps


@pytest.mark.parametrize(
    "data",
    [
        b"done\n",
        b"value 1\n",
        b"loaded\nloaded\n",
        b"loaded\nvalue 1\nloaded\nvalue 2\n",
        b"loaded\nvalue 1\ndone\n",
        b"loaded\nvalue 1\nvalue 2\nvalue 3\n",
        b"loaded\nvalue 1\nvalue 2\nvalue 3\ndone\n",
        b"loaded\nvalue 1\ndone\nvalue 2\n",
        b'raised error "x"\nvalue 1\n',
        b'raised error "x"\ndone\n',
        b"raised error x\n",
        b"raised error 1\n",
        b'raised other "x"\n',
        b"loaded\n\n",
        b"\n",
        b"\x00\xff\n",
        b"passed\n",
        b"loaded\nheld\n",
        b"loaded\n" + b"value 1\n" * 999_999,
    ],
)
def test_anything_else_is_forged(data):
    with pytest.raises(Forged):
        read_transcript(data, 2)


def test_what_an_error_says_becomes_one_printable_line():
    found = read_transcript(b'raised error "a\\n b\\u001b[31m\\ud800"\n', 0)
    assert found.steps[0].error == "a b [31m?"
