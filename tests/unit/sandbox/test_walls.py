"""What is reported as active, and the tables behind the walls."""

import os
import re
from pathlib import Path

import pytest

from teamtune.sandbox import Sandbox
from teamtune.sandbox.command import boxed_command, find_bubblewrap, plain_command
from teamtune.sandbox.server.probe import WRITING
from teamtune.sandbox.server.syscalls import AARCH64, ALLOWED, CHECKED, REMOVING, UNKNOWN, X86_64

HEADERS = {
    X86_64: Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    AARCH64: Path("/usr/include/asm-generic/unistd.h"),
}


def test_protection_names_what_holds(sandbox):
    found = sandbox.protection
    names = {"time", "cpu", "memory", "processes", "network", "file_size", "output", "environment"}
    assert names | {"disk", "reading", *WRITING} <= found.keys()
    assert all(isinstance(means, str) and means for means in found.values())


def test_a_server_of_roots_runs_programs_as_another_user(sandbox):
    if os.geteuid() != 0:
        pytest.skip("not root")
    users = sandbox.run_sync(
        "import os\nprint(0 in os.getresuid() + os.getresgid(), os.getgroups())"
    )
    assert users.stdout == "False []\n"


@pytest.mark.skipif(find_bubblewrap() is None, reason="no bubblewrap that works here")
def test_inside_bubblewrap_little_is_to_be_seen():
    boxed = Sandbox(workers=1)
    assert boxed.protection["namespaces"] == "bubblewrap"
    program = "import os\nprint(os.path.exists('/home'), os.path.exists('/etc/passwd'))"
    assert boxed.run_sync(program).stdout == "False False\n"
    boxed.close()


def test_bubblewrap_takes_the_network_and_everything_else_away():
    command = boxed_command("/usr/bin/bwrap", "{}", "/tmp/x", 1 << 20)
    for flag in ("--unshare-net", "--unshare-pid", "--unshare-ipc", "--die-with-parent"):
        assert flag in command
    assert "--bind" not in command
    assert command.count("--remount-ro") == 2
    assert command[-len(plain_command("{}")) :] == plain_command("{}")
    assert (os.geteuid() == 0) != ("--unshare-user" in command)


@pytest.mark.parametrize("column", HEADERS)
def test_call_numbers_are_the_kernels(column):
    if not HEADERS[column].exists():
        pytest.skip(f"no {HEADERS[column]}")
    defined = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)\n", HEADERS[column].read_text())
    kernel = {name: int(number) for name, number in defined}
    kernel.setdefault("newfstatat", kernel.get("fstatat", -1))
    for name, numbers in {**ALLOWED, **REMOVING, **CHECKED, **UNKNOWN}.items():
        if numbers[column] is not None:
            assert kernel[name] == numbers[column], name


def test_no_dangerous_call_is_on_the_list():
    allowed = ALLOWED.keys() | REMOVING.keys() | CHECKED.keys()
    dangerous = [
        "fork", "vfork", "clone3", "execve", "execveat", "ptrace", "process_vm_readv",
        "process_vm_writev", "socket", "connect", "bind", "listen", "accept", "sendmsg",
        "recvmsg", "io_uring_setup", "bpf", "mount", "unshare", "setns", "chroot", "pivot_root",
        "kexec_load", "init_module", "memfd_create", "shmget", "mq_open", "keyctl", "add_key",
        "userfaultfd", "perf_event_open", "prctl", "seccomp", "setuid", "setgid", "capset",
        "setpriority", "sched_setaffinity", "pidfd_open", "pidfd_send_signal", "rt_sigqueueinfo",
        "tkill", "mkdir", "mkdirat", "symlink", "symlinkat", "link", "linkat", "chmod",
        "fchmodat", "mknod", "mknodat", "truncate", "creat", "utime", "utimes", "utimensat",
        "open_by_handle_at", "openat2", "sendmmsg", "setxattr", "chown", "fchownat", "ftruncate64",
    ]  # fmt: skip
    assert not allowed & set(dangerous)
