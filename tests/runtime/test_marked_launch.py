"""A launch that gets the buffer of a timeline, against a driver that records (`harness/timelines.py`)."""

from __future__ import annotations

import pytest
import torch

from blackwell_matmul import compile, emulate, load, measured_timeline, timeline_buffer
from blackwell_matmul.base.errors import InputError
from blackwell_matmul.compiler import Bundle

M, N, K = 128, 64, 128


@pytest.fixture(scope="module")
def marked() -> Bundle:
    return compile("h2", M, N, K, timeline=128)


def operands() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.ones(M, K).half(), torch.ones(N, K).half(), torch.zeros(M, N).half()


@pytest.mark.process
def test_the_buffer_is_the_last_argument_of_the_launch(gpu, on_gpu, marked):
    a, b, c = (on_gpu(each) for each in operands())
    buffer = on_gpu(torch.zeros(64, dtype=torch.int64))
    gpu.parameters(4, 8, 8, 8, 128, 128, 128, 8)
    load(marked)(M, a, b, c, buffer)
    (launch,) = gpu.calls("cuLaunchKernelEx")
    assert launch["p7"] == buffer.data_ptr().to_bytes(8, "little").hex()
    assert launch["p3"] == c.data_ptr().to_bytes(8, "little").hex()
    assert [each.name for each in marked.plan.parameters] == ["m", "a_ptr", "b_ptr", "c_ptr", "timeline"]


@pytest.mark.process
def test_a_launch_without_it_or_with_another_type_is_refused(gpu, on_gpu, marked):
    a, b, c = (on_gpu(each) for each in operands())
    with pytest.raises(InputError, match=r"takes 5 arguments \(m, a_ptr, b_ptr, c_ptr, timeline\) but got 4"):
        load(marked)(M, a, b, c)
    with pytest.raises(
        InputError, match=r"timeline of HopperMatmulV2 is a tensor of float32 and the kernel takes ~int64"
    ):
        load(marked)(M, a, b, c, on_gpu(torch.zeros(64)))
    assert not gpu.calls("cuLaunchKernelEx")


def test_a_buffer_has_a_row_for_each_warp_of_the_grid(marked):
    a, b, c = operands()
    buffer = timeline_buffer(marked, M, a, b, c)
    x, y, z = marked.plan.evaluate([M, 16, 32, 48, 64]).grid
    assert buffer.shape == (x * y * z * 4 * (64 + 8 * 128) // 8,) and buffer.dtype == torch.int64 and not buffer.any()
    assert x * y * z == 2 and buffer.device == a.device


def test_what_is_read_from_it(marked, monkeypatch):
    a, b, c = operands()
    buffer = timeline_buffer(marked, M, a, b, c)
    with pytest.raises(InputError, match=r"the buffer of this timeline is empty"):
        measured_timeline(marked, buffer)
    emulate(marked, M, a, b, c, buffer)
    assert (c == K).all() and measured_timeline(marked, buffer, gpu="H200").title == "HopperMatmulV2, H200: measured"
    with pytest.raises(InputError, match=r"no CTA ran on SM 1; SM 0 has"):
        measured_timeline(marked, buffer, sm=1)
    with pytest.raises(InputError, match=r"buffer is .*; it must be the int64 tensor that timeline_buffer made\."):
        measured_timeline(marked, buffer.int())
    with pytest.raises(InputError, match=r"bytes a CTA; this one has"):
        measured_timeline(marked, buffer[:-1])


def test_a_bundle_without_marks_has_no_timeline():
    plain = compile("h2", M, N, K)
    told = r"HopperMatmulV2 was compiled without a timeline; compile it with timeline="
    with pytest.raises(InputError, match=told):
        timeline_buffer(plain, M, *operands())
    with pytest.raises(InputError, match=told):
        measured_timeline(plain, torch.zeros(4).long())
    with pytest.raises(InputError, match=r"bundle is 3; it must be a Bundle"):
        timeline_buffer(3, M)
