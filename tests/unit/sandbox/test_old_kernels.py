"""Machines with less to build walls from, as this one with parts of it hidden from the server."""

from pathlib import Path

import pytest

from teamtune.errors import ConfigError
from teamtune.sandbox import Sandbox, command, worker
from teamtune.sandbox.server.probe import WRITING

ROOM = Path(command.__file__).parent
SERVER = """
import json, sys, types
for name, folder in {folders!r}.items():
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [folder]
from teamtune.sandbox.server import landlock, privileges, seccomp
landlock.version = lambda: {landlock}
if not {mounts}: privileges.new_namespaces = lambda: False
if not {filters}: seccomp.supported = lambda: False
from teamtune.sandbox.server.serve import serve
serve(json.loads(sys.argv[1]))
"""
FOLDERS = {"teamtune": str(ROOM.parent), "teamtune.sandbox": str(ROOM)}
OUTSIDE = """
import os
tries = [
    lambda: open({new!r}, "w"),
    lambda: os.open({bait!r}, os.O_WRONLY),
    lambda: os.open({bait!r}, os.O_RDONLY | os.O_TRUNC),
    lambda: os.open({bait!r}, os.O_ACCMODE | os.O_TRUNC),
    lambda: os.open({folder!r}, os.O_TMPFILE | os.O_RDWR),
    lambda: os.truncate({bait!r}, 0),
    lambda: os.unlink({bait!r}),
    lambda: os.rename({bait!r}, {new!r}),
    lambda: os.rename({bait!r}, "mine"),
    lambda: os.utime({bait!r}, (1, 1)),
    lambda: os.chmod({bait!r}, 0),
]
for number, attempt in enumerate(tries):
    try:
        attempt()
    except OSError:
        continue
    print(number)
"""


@pytest.fixture
def old(monkeypatch):
    """A sandbox whose server finds this version of Landlock, and may mount or filter, or not."""
    made = []

    def sandbox(landlock, mounts, filters=True, **options):
        source = SERVER.format(folders=FOLDERS, landlock=landlock, mounts=mounts, filters=filters)
        flags = command.plain_command("")[:-2]
        monkeypatch.setattr(
            worker, "plain_command", lambda settings: [*flags, "-c", source, settings]
        )
        made.append(Sandbox(workers=1, bubblewrap=False, **options))
        return made[-1]

    yield sandbox
    for each in made:
        each.close()


@pytest.fixture
def bait(public):
    """A file of everybody's; the program's user is the one who made it, or another."""
    path = public / "bait"
    path.write_text("whole")
    path.chmod(0o666)
    return path


@pytest.mark.parametrize("mounts", [True, False])
@pytest.mark.parametrize("landlock", [0, 1, 2, 3])
def test_nothing_outside_can_be_written_with_any_landlock_or_none(old, bait, landlock, mounts):
    sandbox = old(landlock, mounts)
    assert set(WRITING) <= sandbox.protection.keys()
    assert ("reading" in sandbox.protection) == (landlock > 0)
    before = bait.stat()
    program = OUTSIDE.format(bait=str(bait), new=str(bait) + "-2", folder=str(bait.parent))
    assert sandbox.run_sync(program).stdout == ""
    assert bait.stat() == before and bait.read_text() == "whole"
    assert list(bait.parent.iterdir()) == [bait]


def test_where_files_can_only_be_counted_none_can_be_hidden(old):
    sandbox = old(1, False, disk_mb=2)
    assert sandbox.protection["disk"] == "counted"
    assert (
        sandbox.run_sync("open('a', 'w').write('kept')\nprint(open('a').read())").stdout == "kept\n"
    )
    for hide in ("os.unlink('a')", "os.rename('a', 'b')", "os.open('.', os.O_TMPFILE | os.O_RDWR)"):
        assert sandbox.run_sync(f"import os\nopen('a', 'w')\n{hide}").status == "error"
    full = (
        "for n in range(3): open(str(n), 'wb').write(bytes(1 << 20))\nimport time\ntime.sleep(99)"
    )
    result = sandbox.run_sync(full, timeout=30)
    assert (result.status, result.error) == ("killed", "too many or too large files")
    assert sandbox.run_sync("import os\nprint(os.listdir('.'))").stdout == "[]\n"


def test_without_any_wall_around_files_programs_have_none(old):
    sandbox = old(0, False)
    assert sandbox.protection["disk"] == "no files"
    assert sandbox.run_sync("open('a', 'w')").status == "error"
    assert sandbox.run_sync("print(input())", "read").stdout == "read\n"


def test_where_writing_outside_cannot_be_prevented_it_refuses_unless_told_otherwise(old, bait):
    with pytest.raises(ConfigError, match="creating, overwriting, truncating, removing.*: true"):
        old(0, False, filters=False).run_sync("pass")
    careless = old(0, False, filters=False, allow_unprotected=True)
    assert not set(WRITING) & careless.protection.keys()
    assert careless.run_sync(f"open({str(bait)!r}, 'w').write('cut')").status == "passed"
    assert bait.read_text() == "cut"
