"""Keeps vLLM and the trainer apart, for they share a process that vLLM takes for its own.

vLLM joins the trainer's default process group as its world, or makes one that the trainer finds;
its start seeds, sets and replaces what belongs to the whole process. Here both keep what is theirs.
"""

import logging
import os
import random
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributed import distributed_c10d

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}


class _Own:
    """What `torch.distributed` shows to vLLM; the names of its groups count from a million."""

    group: Any = None
    count = 1_000_000


def _exchange() -> None:
    """Puts vLLM's default process group in the place of the trainer's, or back."""
    world = distributed_c10d._world
    held = world.default_pg, world.group_count
    distributed_c10d._update_default_pg(_Own.group)
    world.group_count = _Own.count
    _Own.group, _Own.count = held


@contextmanager
def apart() -> Iterator[None]:
    """Inside, the default process group is vLLM's, of this process alone; outside, the trainer's.

    torch's random state on the CPU is kept too, because a step on a CPU draws from it.
    """
    state = torch.get_rng_state()
    _exchange()
    try:
        yield
    finally:
        _exchange()
        torch.set_rng_state(state)


def forget_destroyed_group() -> bool:
    """Whether the trainer's destroy_process_group(), which takes all groups, took vLLM's too."""
    if _Own.group is None or _Own.group in distributed_c10d._world.pg_map:
        return False
    _Own.group = None
    return True


def outside(named_tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """The same items, inside `apart`; what computes them, a gathering of shards, runs outside."""
    iterator = iter(named_tensors)
    while True:
        _exchange()
        try:
            item = next(iterator, None)
        finally:
            _exchange()
        if item is None:
            return
        yield item


def cache_root(device: int) -> str:
    """vLLM's folder for compiled code, one for each GPU: its key for what is in it names none."""
    default = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "vllm"
    root = Path(os.environ.get("VLLM_CACHE_ROOT", default)).expanduser()
    own = f"device_{device}"
    return str(root if root.name == own else root / own)


@contextmanager
def undone() -> Iterator[None]:
    """Undoes what importing and starting vLLM changes in the process, and keeps it quiet.

    It seeds every generator, replaces `torch.set_num_threads` and the excepthook, sets LD_PRELOAD
    and LOCAL_WORLD_SIZE, which processes launched later would inherit, and on a CPU binds all
    memory of the process to one node, which is for whoever launched it to decide.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if torch.cuda.is_available():
        os.environ["VLLM_CACHE_ROOT"] = cache_root(torch.cuda.current_device())
    logging.getLogger("vllm").setLevel(os.environ["VLLM_LOGGING_LEVEL"].upper())
    environment = dict(os.environ)
    states = random.getstate(), np.random.get_state()
    hook, set_num_threads = sys.excepthook, torch.set_num_threads
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    operators: Any = torch.ops._C
    operators.init_cpu_memory_env = lambda nodes: None
    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices):
            warnings.simplefilter("ignore")
            yield
    finally:
        del operators.init_cpu_memory_env
        _restore(environment)
        random.setstate(states[0])
        np.random.set_state(states[1])
        sys.excepthook, torch.set_num_threads = hook, set_num_threads


def _restore(environment: dict[str, str]) -> None:
    """Resets all variables but those of vLLM itself, which it reads again later."""
    for name in os.environ.keys() | environment.keys():
        if not name.startswith("VLLM_") and os.environ.get(name) != environment.get(name):
            del os.environ[name]
            if name in environment:
                os.environ[name] = environment[name]
