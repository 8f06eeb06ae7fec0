"""torch's block-scaled product of an emulated program, beside the operations of this package."""

from __future__ import annotations

import pytest
import torch

from blackwell_matmul import dequantize, quantize
from blackwell_matmul.emulator.cuda_runtime import for_torch
from blackwell_matmul.ops.block_scaled.formats import FORMATS


@pytest.mark.parametrize("dtype", ["mxfp8", "nvfp4"])
def test_torch_s_block_scaled_product(dtype):
    form = FORMATS[dtype]
    x, w = (torch.randn(rows, 96, generator=torch.Generator().manual_seed(rows)) for rows in (130, 64))
    (a, scale_a), (b, scale_b) = (quantize(each, dtype) for each in (x, w))
    wide = [dequantize(data, scale, dtype).double() for data, scale in ((a, scale_a), (b, scale_b))]
    assert for_torch.BLOCKS[form.scale] == form.block
    assert for_torch.has_block_scales(a, b.mT, scale_a, scale_b)
    bias = torch.ones(64, dtype=torch.bfloat16)
    for given, added in ((None, 0.0), (bias, 1.0)):
        c = for_torch.block_scaled_product(a, b.mT, scale_a, scale_b, given, out_dtype=torch.float32)
        assert torch.equal(c, (wide[0] @ wide[1].T + added).float())
    assert not for_torch.has_block_scales(a, b.mT, torch.ones(1), torch.ones(1))
