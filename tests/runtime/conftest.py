"""A driver that records instead of running, and tensors that say they are on a GPU.

The fake libcuda is compiled on the spot; tests that need it are skipped where there is no C compiler. It carries the
soname of the real library, so that whoever opens libcuda.so.1 afterwards in this process gets it.
"""

from __future__ import annotations

import pytest
from fake_gpu import FakeGpu, OnGpu, build, install


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory: pytest.TempPathFactory) -> FakeGpu:
    library, reason = build(tmp_path_factory.mktemp("fakecuda"))
    if library is None:
        pytest.skip(reason)
    return FakeGpu(library)


@pytest.fixture
def gpu(fake_library: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    """An H200 with index 0; what a test changes is undone."""
    install(monkeypatch)
    fake_library.reset()
    return fake_library


@pytest.fixture
def on_gpu():
    """Make a tensor that claims to be on the fake GPU."""
    return OnGpu.of
