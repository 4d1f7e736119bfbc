"""Where vLLM keeps what it compiles: ranks have a device each, and so a folder."""

import pytest

from teamtune.inference.isolation import cache_root


def test_every_device_has_a_cache_of_its_own(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("VLLM_CACHE_ROOT", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert [cache_root(i) for i in range(2)] == [f"/cache/vllm/device_{i}" for i in range(2)]
    monkeypatch.setenv("VLLM_CACHE_ROOT", "/own")
    assert cache_root(1) == "/own/device_1"
    monkeypatch.setenv("VLLM_CACHE_ROOT", cache_root(1))  # a second engine of the process
    assert cache_root(1) == "/own/device_1"
