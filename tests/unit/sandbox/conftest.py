"""One warm sandbox for all tests of this folder, with and, where it works, without bubblewrap."""

import os
import tempfile
import textwrap
import time
from pathlib import Path

import pytest

from teamtune.sandbox import Sandbox
from teamtune.sandbox.command import find_bubblewrap

MODES = ["plain", "bubblewrap"] if find_bubblewrap() else ["plain"]
ASSERTS = ["assert f(2) == 4", "assert f(3) == 9"]
GOOD = "def f(x): return x * x\n"
LIMIT = 1.0


@pytest.fixture(scope="session", params=MODES)
def sandbox(request):
    made = Sandbox(timeout=5.0, memory_mb=512, workers=2, bubblewrap=request.param == "bubblewrap")
    made.run_sync("pass")
    yield made
    made.close()


@pytest.fixture
def public():
    """A folder that every user may enter and change; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o777)
        yield Path(name)


@pytest.fixture
def attack(sandbox):
    """Runs a program against two asserts: nothing scored, nothing harmed, over in time."""

    def run(program, statuses):
        for _ in range(3):  # a busy machine can only make it slower
            result, took = attempt(sandbox, textwrap.dedent(program))
            if result.status in statuses.split() and took < LIMIT + 1:
                return
        raise AssertionError(f"took {took} s: {result}")

    return run


def attempt(sandbox, program):
    """One attempt and how long it took; what must hold whatever else this machine is doing."""
    servers = sandbox._ready().pids()
    began = time.monotonic()
    result = sandbox.run_tests_sync(program, ASSERTS, timeout=LIMIT)
    took = time.monotonic() - began
    assert (result.passed, result.total) == (0, 2), result
    assert len(result.stdout) <= sandbox.output_bytes
    assert sandbox._ready().pids() == servers, "a server was lost"
    if sandbox.protection.get("namespaces") != "bubblewrap":  # there, the server is a child
        assert [children_of(pid) for pid in servers] == [[] for _ in servers]
    for _ in range(sandbox.workers):
        assert sandbox.run_tests_sync(GOOD, ASSERTS).status == "passed"
        assert sandbox.run_sync("import os\nprint(os.listdir('.'))").stdout == "[]\n"
    return result, took


def children_of(pid):
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
