"""Programs that mean harm to the machine: each scores 0, ends in time, and harms nothing."""

import os
import socket
import sysconfig
from pathlib import Path

import pytest

from teamtune.sandbox import Sandbox

LIBC = """
import ctypes, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    if isinstance(number, dict): number = number[os.uname().machine]
    if libc.syscall(number, *args) == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
"""

TIME = {
    "endless loop": ("while True: pass", "timeout"),
    "endless loop in a test": ("def f(x):\n    while True: pass", "timeout"),
    "endless sleep": ("import time\ntime.sleep(10**6)", "timeout"),
    "ignored SIGTERM": (
        """
        import signal, time
        for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        while True: time.sleep(0.01)
        """,
        "timeout",
    ),
    "catching BaseException": (
        """
        while True:
            try:
                while True: pass
            except BaseException: pass
        """,
        "timeout",
    ),
    "one long computation": ("9 ** 9 ** 9", "timeout memory"),
    "threads that never end": (
        "import threading\nthreading.Thread(target=lambda: iter(int, 1).__length_hint__() or "
        "any(iter(int, 1))).start()\nany(iter(int, 1))",
        "timeout",
    ),
    "stopping itself": ("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", "timeout"),
}
PROCESSES = {
    "fork bomb": ("import os\nwhile True: os.fork()", "error"),
    "stubborn fork bomb": (
        """
        import os
        while True:
            try: os.fork()
            except OSError: pass
        """,
        "timeout",
    ),
    "fork by hand": (LIBC + "call({'x86_64': 56, 'aarch64': 220}, 17, 0, 0, 0, 0)", "error"),
    "vfork": (LIBC + "if libc.vfork() == -1: raise OSError", "error"),
    "clone3": (LIBC + "call(435, bytes(64), 64)", "error"),
    "thread bomb": (
        """
        import threading, time
        threading.stack_size(32768)
        while True: threading.Thread(target=time.sleep, args=(99,)).start()
        """,
        "error memory timeout killed",
    ),
    "a shell": ("import subprocess\nsubprocess.run(['/bin/sh', '-c', 'true'])", "error"),
    "exec": ("import os\nos.execv('/bin/true', ['true'])", "error"),
    "a daemon that outlives its parent": (
        """
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0: time.sleep(99)
        """,
        "error",
    ),
    "killing its parent": ("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)", "error"),
    "stopping its parent": ("import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)", "error"),
    "killing everyone": ("import os, signal\nos.kill(-1, signal.SIGKILL)", "error"),
    "killing its group": ("import os, signal\nos.killpg(0, signal.SIGKILL)", "error"),
    "killing by queue": (
        LIBC + "call({'x86_64': 129, 'aarch64': 138}, os.getppid(), 9, bytes(128))",
        "error",
    ),
    "killing by descriptor": (LIBC + "call(434, os.getppid(), 0)", "error"),
    "an owner of signals": (
        """
        import fcntl, os, signal
        reader, writer = os.pipe()
        fcntl.fcntl(reader, fcntl.F_SETOWN, os.getppid())
        fcntl.fcntl(reader, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(reader, fcntl.F_SETFL, os.O_ASYNC)
        os.write(writer, b"x")
        """,
        "error",
    ),
    "every command of files that signals": (
        """
        import fcntl, os, signal, socket, struct
        reader, writer = os.pipe()
        ours, other = socket.socketpair()
        owner = struct.pack("ii", 1, os.getppid())
        whole = struct.pack("i", os.getppid())
        def set_signal(handle):
            fcntl.fcntl(handle, fcntl.F_SETSIG, signal.SIGSTOP)
        def own(handle): fcntl.fcntl(handle, fcntl.F_SETOWN, os.getppid())
        def own_ex(handle): fcntl.fcntl(handle, 15, owner)
        def lease(handle): fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        def notify(handle): fcntl.fcntl(handle, fcntl.F_NOTIFY, 0xff)
        def enlarge(handle): fcntl.fcntl(handle, fcntl.F_SETPIPE_SZ, 1 << 20)
        def by_ioctl(handle): fcntl.ioctl(handle, 0x8901, whole)
        def by_group(handle): fcntl.ioctl(handle, 0x8902, whole)
        def asynchronous(handle): fcntl.ioctl(handle, 0x5452, struct.pack("i", 1))
        tries = (set_signal, own, own_ex, lease, notify, enlarge, by_ioctl, by_group, asynchronous)
        for attempt in tries:
            for handle in (reader, writer, ours.fileno(), 0, 1, 3):
                try: attempt(handle)
                except PermissionError: continue
                print(attempt.__name__, "went through")
                def f(x): return x * x
        """,
        "failed error",
    ),
    "ptrace": (LIBC + "call({'x86_64': 101, 'aarch64': 117}, 16, os.getppid(), 0, 0)", "error"),
    "reading its parent's memory": (
        LIBC + "call({'x86_64': 310, 'aarch64': 270}, os.getppid(), 0, 0, 0, 0, 0)",
        "error",
    ),
    "another's limits": (
        "import os, resource as r\nr.prlimit(os.getppid(), r.RLIMIT_CPU, (0, 0))",
        "error",
    ),
    "another's priority": ("import os\nos.setpriority(os.PRIO_PROCESS, os.getppid(), 19)", "error"),
    "surviving its server": (LIBC + "if libc.prctl(1, 0) == -1: raise OSError", "error"),
    "becoming root": ("import os\nos.setuid(0)", "error"),
    "a user namespace": (LIBC + "if libc.unshare(0x10000000) == -1: raise OSError", "error"),
    "io_uring": (LIBC + "call(425, 8, bytes(120))", "error"),
}  # fmt: skip
MEMORY_AND_DISK = {
    "ten gigabytes": ("x = bytearray(10 << 30)", "memory"),
    "ten gigabytes in pieces": (
        "x = []\nwhile True: x.append(bytearray(1 << 20))",
        "memory timeout",
    ),
    "ten gigabytes in a test": ("def f(x): return [0] * (10 << 30)", "memory"),
    "memory outside its own": ("import os\nos.memfd_create('x')", "error"),
    "raised limits": (
        "import resource as r\nr.setrlimit(r.RLIMIT_AS, (r.RLIM_INFINITY, r.RLIM_INFINITY))",
        "error",
    ),
    "a gigabyte of output": ("while True: print('x' * 10**6)", "killed"),
    "a gigabyte of output in a test": (
        "import os\ndef f(x):\n    while True: os.write(1, bytes(1 << 16))",
        "killed",
    ),
    "a gigabyte of file": (
        "with open('big', 'wb') as big:\n    for _ in range(1024): big.write(bytes(1 << 20))",
        "error timeout",
    ),
    "a hole of a gigabyte": ("open('big', 'wb').truncate(1 << 30)", "error"),
    "a gigabyte of files": (
        """
        import itertools
        for name in itertools.count():
            with open(str(name), 'wb') as part: part.write(bytes(8 << 20))
        """,
        "killed timeout error",  # bubblewrap's own file system may be full before we look
    ),
    "a million files": (
        "import itertools\nfor name in itertools.count(): open(str(name), 'wb').close()",
        "killed timeout error",
    ),
    "removed files that are still mapped": (
        """
        import mmap, os
        kept = []
        for _ in range(1024):
            with open("big", "wb+") as big:
                big.write(bytes(8 << 20))
                big.flush()
                kept.append(mmap.mmap(big.fileno(), 4096))
            os.unlink("big")
        def f(x): return x * x
        """,
        "error killed timeout",
    ),
    "files without a name": (
        "import os\nos.open('.', os.O_TMPFILE | os.O_RDWR)",
        "error",
    ),
    "folders": ("import os\nos.mkdir('a')", "error"),
    "a scratch folder closed to its owner": ("import os\nos.chmod('.', 0)", "error"),
    "a link out of the folder": ("import os\nos.symlink('/etc', 'etc')", "error"),
}
OUTSIDE = {
    "the parent's environment": (
        "import os\nopen(f'/proc/{os.getppid()}/environ').read()",
        "error",
    ),
    "its own place in /proc": ("open('/proc/self/environ').read()", "error"),
    "users of the machine": ("open('/etc/passwd').read()", "error"),
    "the root folder": ("import os\nassert os.listdir('/tmp') == 0", "error"),
    "writing to /var/tmp": ("open('/var/tmp/teamtune-attack', 'w')", "error"),
    "writing beside its folder": ("open('../teamtune-attack', 'w')", "error"),
    "writing to /dev/shm": ("open('/dev/shm/teamtune-attack', 'w')", "error"),
    "files beside its own, in a box": (
        "import os\nfor path in ('/x', '/dev/x', '/tmp/x', '/dev/shm/x'):\n"
        "    try: open(path, 'w')\n    except OSError: continue\n    def f(x): return x * x",
        "error failed",
    ),
    "truncating what may be read": (
        "import os\nos.open(os.__file__, os.O_RDONLY | os.O_TRUNC)",
        "error",
    ),
    "truncating by a way of opening that is none": (
        "import os\nos.open(os.__file__, os.O_ACCMODE | os.O_TRUNC)",
        "error",
    ),
    "times of another file": ("import os\nos.utime(os.__file__)", "error"),
    "writing to the library": ("import os\nopen(os.__file__, 'a')", "error"),
    "a socket": ("import socket\nsocket.socket()", "error"),
    "a local socket": ("import socket\nsocket.socket(socket.AF_UNIX)", "error"),
    "a datagram to a path": (
        "import socket\nours, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "try: ours.sendto(b'x', '/run/nobody')\n"
        "except PermissionError: raise\nexcept OSError:\n    def f(x): return x * x",
        "error",
    ),
    "a name server": ("import socket\nsocket.getaddrinfo('example.org', 80)", "error"),
    "a web page": ("import socket\nsocket.create_connection(('192.0.2.1', 80), 0.5)", "error"),
    "bubblewrap's or the server's settings": ("open('/proc/1/cmdline').read()", "error"),
}  # fmt: skip
ATTACKS = {**TIME, **PROCESSES, **MEMORY_AND_DISK, **OUTSIDE}


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_scores_nothing_and_harms_nothing(attack, name):
    attack(*ATTACKS[name])


@pytest.mark.parametrize(
    "program",
    [
        "for n in range(3): open(str(n), 'wb').write(bytes(1 << 20))",
        "for n in range(1001): open(str(n), 'w').close()",
    ],
)
def test_files_beyond_the_quota_end_the_program(program):
    small = Sandbox(disk_mb=2, workers=1, bubblewrap=False)
    result = small.run_sync(program + "\nimport time\ntime.sleep(99)", timeout=30)
    small.close()
    assert result.status in ("killed", "error")
    assert "too large files" in result.error or "No space left" in result.error


def test_the_trainers_environment_and_files_cannot_be_found(sandbox, tmp_path, monkeypatch):
    monkeypatch.setenv("TEAMTUNE_TEST_TOKEN", "hunter2-env")
    secret = tmp_path / "secret"
    secret.write_text("hunter2-file")
    secret.chmod(0o644)
    sandbox.close()  # new servers, started with the token set
    program = f"""
import gc, os
seen = [repr(dict(os.environ))]
paths = [{str(secret)!r}, {__file__!r}, '/proc/1/environ', '/proc/self/environ', '/proc/self/maps']
paths += [f'/proc/{{pid}}/environ' for pid in (os.getppid(), {os.getpid()})]
for path in paths:
    try: seen.append(repr(open(path, 'rb').read()))
    except OSError as error: pass
for fd in range(3, 256):
    try: seen.append(repr(os.pread(fd, 1 << 20, 0)))
    except OSError: pass
print(len(seen), seen)
"""
    result = sandbox.run_sync(program)
    assert result.status == "passed"
    assert result.stdout.startswith("1 ") and "hunter2" not in result.stdout
    for server in sandbox._ready().pids():  # not even where a program would search its memory
        environment = Path(f"/proc/{server}/environ")
        if os.access(environment, os.R_OK):  # which root may read
            assert environment.read_bytes() == b"PYTHONHASHSEED=0\0"


def test_installed_packages_cannot_be_read(sandbox):
    """They may hold a benchmark with its answers."""
    folder = Path(os.__file__).parent / "site-packages"
    found = next((path for path in folder.rglob("*") if path.is_file()), None)
    if found is None:
        pytest.skip(f"nothing is installed in {folder}")
    assert sandbox.run_sync(f"open({str(found)!r}, 'rb')").status == "error"
    found = next(Path(sysconfig.get_path("purelib")).rglob("*.py"))
    assert sandbox.run_sync(f"open({str(found)!r}, 'rb')").status == "error"


@pytest.mark.parametrize("high", [0, 1])
def test_a_socket_in_the_file_system_hears_nothing(sandbox, public, high):
    """Nor where the low half of the address of its address is 0, as of no address."""
    path = public / "socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        path.chmod(0o777)
        listener.settimeout(0.3)
        program = (
            LIBC
            + f"""
import mmap, socket, struct
ours, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
libc.mmap.restype = ctypes.c_void_p
at = libc.mmap(ctypes.c_void_p({high} << 32), ctypes.c_size_t(4096), 3, 0x32 if {high} else 0x22,
               -1, ctypes.c_long(0))
name = struct.pack("H", 1) + {os.fsencode(path)!r} + bytes(1)
ctypes.memmove(at, name, len(name))
assert not {high} or at == 1 << 32
libc.sendto.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int,
                        ctypes.c_void_p, ctypes.c_uint]
print(libc.sendto(ours.fileno(), b"hello", 5, 0, at, len(name)), ctypes.get_errno())
"""
        )
        assert sandbox.run_sync(program).stdout == "-1 1\n"
        with pytest.raises(TimeoutError):
            listener.recv(9)


def test_a_listener_on_this_machine_hears_nothing(sandbox):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.3)
        port = listener.getsockname()[1]
        program = f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 0.3)"
        assert sandbox.run_sync(program).status == "error"
        with pytest.raises(TimeoutError):
            listener.accept()
