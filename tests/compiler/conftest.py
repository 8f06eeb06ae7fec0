"""Each test of the compiler has a cache of its own; without NVRTC there is nothing to test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from blackwell_matmul.compiler import cache, compiling

pytest.importorskip("cuda.bindings.nvrtc")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache on disk that nobody else has, and none in memory."""
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / "cache"))
    compiling._memo.clear()
    cache._warned.clear()
    yield tmp_path / "cache"
    compiling._memo.clear()
