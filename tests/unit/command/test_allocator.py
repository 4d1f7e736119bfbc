"""What is told to the C library, on a machine with a GPU and without."""

import ctypes
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from teamtune.command import allocator


@pytest.mark.parametrize(("driver", "told"), [(None, {-1, -2, -4}), ("here", {-1, -2})])
def test_large_tensors_are_kept_off_the_heap_only_where_there_is_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: str | None, told: set[int]
):
    if driver:
        (tmp_path / driver).touch()
    given: dict[int, int] = {}

    def mallopt(option: int, value: int) -> int:
        given[option] = value
        return 1

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=mallopt))
    monkeypatch.setattr(allocator, "GPU_DRIVERS", (tmp_path / "here",))
    assert allocator.keep_freed_memory()
    assert given.keys() == told and given.get(-4, 0) == 0
