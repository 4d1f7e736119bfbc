"""The kernel calls a confined program may make: what plain Python code and threads need.

Per call the number on x86-64 and on aarch64 (None: the architecture lacks it). Not listed, hence
refused: new processes, exec, ptrace, sockets that reach out, io_uring, shared memory, mounts,
namespaces, permissions, times of files, truncating by name, folders and links, and everything that
names another process.
"""

X86_64, AARCH64 = 0, 1
"""Columns of ALLOWED."""

AUDIT_ARCH = {"x86_64": (0xC000003E, X86_64), "aarch64": (0xC00000B7, AARCH64)}
"""Machine name: what the kernel calls the architecture in a filter, and the column."""

Numbers = tuple[int | None, int | None]

_FILES: dict[str, Numbers] = {
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "stat": (4, None), "fstat": (5, 80),
    "lstat": (6, None), "lseek": (8, 62), "pread64": (17, 67), "pwrite64": (18, 68),
    "readv": (19, 65), "writev": (20, 66), "access": (21, None), "dup": (32, 23),
    "dup2": (33, None), "sendfile": (40, 71), "flock": (73, 32), "fsync": (74, 82),
    "fdatasync": (75, 83), "ftruncate": (77, 46), "getdents": (78, None), "getcwd": (79, 17),
    "chdir": (80, 49), "fchdir": (81, 50), "readlink": (89, None), "umask": (95, 166),
    "statfs": (137, 43), "fstatfs": (138, 44), "getdents64": (217, 61), "fadvise64": (221, 223),
    "newfstatat": (262, 79), "readlinkat": (267, 78), "faccessat": (269, 48),
    "fallocate": (285, 47), "dup3": (292, 24), "preadv": (295, 69), "pwritev": (296, 70),
    "copy_file_range": (326, 285), "statx": (332, 291), "close_range": (436, 436),
    "faccessat2": (439, 439),
}  # fmt: skip

_MEMORY_AND_THREADS: dict[str, Numbers] = {
    "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215), "brk": (12, 214),
    "mremap": (25, 216), "msync": (26, 227), "madvise": (28, 233), "sched_yield": (24, 124),
    "getpid": (39, 172), "gettid": (186, 178), "getppid": (110, 173), "exit": (60, 93),
    "exit_group": (231, 94), "futex": (202, 98), "set_tid_address": (218, 96),
    "set_robust_list": (273, 99), "arch_prctl": (158, None), "rseq": (334, 293),
    "membarrier": (324, 283), "getcpu": (309, 168), "sched_getaffinity": (204, 123),
    "sched_get_priority_max": (146, 125), "sched_get_priority_min": (147, 126),
}  # fmt: skip

_SIGNALS_AND_TIME: dict[str, Numbers] = {
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139),
    "rt_sigpending": (127, 136), "rt_sigtimedwait": (128, 137), "rt_sigsuspend": (130, 133),
    "sigaltstack": (131, 132), "restart_syscall": (219, 128), "pause": (34, None),
    "alarm": (37, None), "getitimer": (36, 102), "setitimer": (38, 103), "nanosleep": (35, 101),
    "clock_nanosleep": (230, 115), "clock_gettime": (228, 113), "clock_getres": (229, 114),
    "gettimeofday": (96, 169), "time": (201, None), "times": (100, 153),
}  # fmt: skip

_WAITING_AND_PIPES: dict[str, Numbers] = {
    "poll": (7, None), "select": (23, None), "pselect6": (270, 72), "ppoll": (271, 73),
    "epoll_create": (213, None), "epoll_create1": (291, 20), "epoll_ctl": (233, 21),
    "epoll_wait": (232, None), "epoll_pwait": (281, 22), "eventfd2": (290, 19),
    "pipe": (22, None), "pipe2": (293, 59), "recvfrom": (45, 207), "shutdown": (48, 210),
    "getsockname": (51, 204), "getpeername": (52, 205), "setsockopt": (54, 208),
    "getsockopt": (55, 209),
}  # fmt: skip

_ABOUT_ITSELF: dict[str, Numbers] = {
    "uname": (63, 160), "getrlimit": (97, 163), "setrlimit": (160, 164), "getrusage": (98, 165),
    "sysinfo": (99, 179), "getuid": (102, 174), "getgid": (104, 176), "geteuid": (107, 175),
    "getegid": (108, 177), "getgroups": (115, 158), "getpgrp": (111, None),
    "getpgid": (121, 155), "getsid": (124, 156), "getresuid": (118, 148),
    "getresgid": (120, 150), "getrandom": (318, 278),
}  # fmt: skip

ALLOWED: dict[str, Numbers] = {
    **_FILES,
    **_MEMORY_AND_THREADS,
    **_SIGNALS_AND_TIME,
    **_WAITING_AND_PIPES,
    **_ABOUT_ITSELF,
}

REMOVING: dict[str, Numbers] = {
    "rename": (82, None), "unlink": (87, None), "unlinkat": (263, 35), "renameat": (264, 38),
    "renameat2": (316, 276),
}  # fmt: skip
"""Allowed where a removed file that is still open cannot take more room than there is."""

CHECKED: dict[str, Numbers] = {
    "clone": (56, 220), "kill": (62, 129), "tgkill": (234, 131), "prlimit64": (302, 261),
    "ioctl": (16, 29), "fcntl": (72, 25), "socketpair": (53, 199), "sendto": (44, 206),
    "open": (2, None), "openat": (257, 56),
}  # fmt: skip
"""Calls that are allowed for some arguments only; `seccomp.py` has the conditions."""

UNKNOWN: dict[str, Numbers] = {"clone3": (435, 435), "openat2": (437, 437)}
"""Answered with ENOSYS, on which the C library falls back to an older call that is checked."""
