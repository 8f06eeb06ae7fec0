"""`quantize` and `dequantize` beside the rules, written in numpy with the types of ml_dtypes."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from blackwell_matmul import InputError, dequantize, quantize
from blackwell_matmul.ops.block_scaled.swizzling import swizzle, unswizzle

FORMATS = ("mxfp8", "mxfp4", "nvfp4")
MX = ("mxfp8", "mxfp4")
BLOCKS = {"mxfp8": 32, "mxfp4": 32, "nvfp4": 16}
LARGEST = {"mxfp8": 448.0, "mxfp4": 6.0, "nvfp4": 6.0}
ELEMENTS = {"mxfp8": ml_dtypes.float8_e4m3fn, "mxfp4": ml_dtypes.float4_e2m1fn, "nvfp4": ml_dtypes.float4_e2m1fn}


def randn(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def wide(rows, k, seed=0):
    """Return numbers whose blocks differ by many powers of two, with zeros and ties of the roundings among them."""
    x = randn(rows, k, seed=seed) * torch.exp2(torch.randint(-30, 30, (rows, k // 16)).repeat_interleave(16, 1).float())
    x[::3, ::7] = 0
    x[1::4] = torch.randint(-24, 25, x[1::4].shape).float() / 4
    return x


def by_powers(x: np.ndarray, name: str, scaling: str) -> tuple[np.ndarray, np.ndarray]:
    """Return elements and bytes of scales by the definitions, a block at a time."""
    blocks = x.astype(np.float64).reshape(*x.shape[:-1], -1, 32)
    scales = np.zeros(blocks.shape[:-1], np.uint8)
    for place in np.ndindex(scales.shape):
        amax = np.abs(blocks[place]).max()
        exponent = -127
        if amax:
            up = scaling == "rceil"
            of = math.ceil(math.log2(amax / LARGEST[name])) if up else math.floor(math.log2(amax))
            exponent = max(-127, of if up else of - math.floor(math.log2(LARGEST[name])))
        scales[place] = exponent + 127
    scaled = blocks / np.exp2(scales.astype(np.float64) - 127)[..., None]
    return np.clip(scaled, -LARGEST[name], LARGEST[name]).reshape(x.shape).astype(ELEMENTS[name]), scales


def by_numbers(x: np.ndarray, factor: np.float32 | None) -> tuple[np.ndarray, np.ndarray]:
    """Return elements of nvfp4 and bytes of its scales, each operation rounded to fp32."""
    blocks = x.reshape(*x.shape[:-1], -1, 16)
    exact = np.abs(blocks).max(-1) / np.float32(6)
    exact = exact if factor is None else exact / factor
    scales = np.clip(exact, np.float32(2**-6), np.float32(448)).astype(ml_dtypes.float8_e4m3fn)
    reciprocal = np.float32(1) / (np.float32(1) if factor is None else factor) / scales.astype(np.float32)
    scaled = np.clip(blocks * reciprocal[..., None], -6, 6).reshape(x.shape)
    return scaled.astype(ml_dtypes.float4_e2m1fn), scales.view(np.uint8)


def bytes_of(elements: np.ndarray) -> np.ndarray:
    codes = elements.view(np.uint8)
    return codes if elements.dtype == ml_dtypes.float8_e4m3fn else codes[..., 0::2] | codes[..., 1::2] << 4


def as_bytes(x: torch.Tensor) -> np.ndarray:
    return x.view(torch.uint8).numpy()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scaling", ["rceil", "floor"])
@pytest.mark.parametrize("name", MX)
def test_powers_of_two_are_those_of_the_definitions(name, scaling, dtype):
    x = wide(24, 128).clamp(-6e4, 6e4).to(dtype)
    data, scales = quantize(x, name, scaling, swizzled=False)
    elements, wanted = by_powers(x.float().numpy(), name, scaling)
    assert np.array_equal(as_bytes(scales), wanted)
    assert np.array_equal(as_bytes(data), bytes_of(elements))


@pytest.mark.parametrize("name", MX)
def test_the_ends_of_fp32(name):
    """A power of two exactly, the next number, the largest, and what is too small for any scale."""
    ends = [2.0**-127, 2.0**-126, 1.0, 2.0**127, LARGEST[name], 1.75, 1.5, 6e-39, 1e-45, 3.4028234e38]
    ends += [float(np.nextafter(np.float32(each), np.float32(np.inf))) for each in ends[:-1]]
    x = torch.tensor(ends)[:, None] * torch.ones(32)
    for scaling in ("rceil", "floor"):
        data, scales = quantize(x, name, scaling, swizzled=False)
        elements, wanted = by_powers(x.numpy(), name, scaling)
        assert np.array_equal(as_bytes(scales), wanted)
        assert np.array_equal(as_bytes(data), bytes_of(elements))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("two_levels", [False, True])
def test_nvfp4_is_that_of_both_levels(two_levels, dtype):
    x = torch.cat([wide(24, 128), randn(64, 128)]).to(dtype).float()
    factor = x.abs().max() / (448 * 6) if two_levels else None
    data, scales = quantize(x, "nvfp4", global_scale=factor, swizzled=False)
    elements, wanted = by_numbers(x.numpy(), None if factor is None else np.float32(factor.item()))
    assert np.array_equal(as_bytes(scales), wanted)
    assert np.array_equal(as_bytes(data), bytes_of(elements))
    by_value = quantize(x, "nvfp4", global_scale=None if factor is None else factor.item(), swizzled=False)
    assert all(np.array_equal(as_bytes(one), as_bytes(two)) for one, two in zip(by_value, (data, scales), strict=True))


def test_every_tie_of_e2m1_goes_to_the_even_code():
    """A block whose largest element is 6 has the scale 1."""
    halves = torch.arange(-24, 25) / 4
    near = torch.cat([halves, torch.nextafter(halves, torch.tensor(9.0)), torch.nextafter(halves, torch.tensor(-9.0))])
    x = torch.full((len(near), 32), 6.0)
    x[:, 1] = near = near.clamp(-6, 6)
    data, _ = quantize(x, "mxfp4", swizzled=False)
    wanted = near.numpy().astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    assert np.array_equal(as_bytes(data)[:, 0], wanted << 4 | 7)


@pytest.mark.parametrize("name", FORMATS)
def test_all_values_come_back(name):
    """What a format represents, quantised, is itself; the value is the element times its scales in float64."""
    rng = np.random.default_rng(1)
    codes = np.arange(256, dtype=np.uint8).reshape(4, 64)
    if name == "mxfp8":
        elements = np.where(codes & 0x7F == 0x7F, 0, codes).view(ml_dtypes.float8_e4m3fn)
        data = torch.from_numpy(elements.view(np.uint8)).view(torch.float8_e4m3fn)
    else:
        elements = np.stack([codes & 15, codes >> 4], -1).reshape(4, 128).view(ml_dtypes.float4_e2m1fn)
        data = torch.from_numpy(codes).view(torch.float4_e2m1fn_x2)
    shape = (4, elements.shape[1] // BLOCKS[name])
    scales = rng.integers(1, 126, shape).astype(np.uint8) if name == "nvfp4" else rng.integers(9, 240, shape)
    scale_type = ml_dtypes.float8_e4m3fn if name == "nvfp4" else ml_dtypes.float8_e8m0fnu
    factors = np.repeat(scales.astype(np.uint8).view(scale_type).astype(np.float64), BLOCKS[name], -1)
    torchs = torch.from_numpy(scales.astype(np.uint8))
    torchs = torchs.view(torch.float8_e4m3fn if name == "nvfp4" else torch.float8_e8m0fnu)
    made = dequantize(data, torchs, name, swizzled=False)
    assert np.array_equal(made.numpy().astype(np.float64), elements.astype(np.float64) * factors)
    assert torch.equal(made, dequantize(data, swizzle(torchs), name))
    if name != "nvfp4":
        assert torch.equal(dequantize(*quantize(made, name), name), made)


@pytest.mark.parametrize("name", FORMATS)
def test_the_error_is_that_of_the_format(name):
    """Signal to noise of normal data: about 31, 20 and 19 dB."""
    x = randn(128, 256)
    factor = x.abs().max() / (448 * 6) if name == "nvfp4" else None
    back = dequantize(*quantize(x, name, global_scale=factor), name, factor)
    noise = 10 * math.log10(float(x.square().sum() / (x - back).square().sum()))
    assert noise > {"mxfp8": 31, "nvfp4": 20, "mxfp4": 18.5}[name]
    half = dequantize(*quantize(x, name, global_scale=factor), name, factor, out_dtype=torch.bfloat16)
    assert torch.equal(half, back.bfloat16())


@pytest.mark.parametrize(("rows", "blocks"), [(1, 1), (128, 4), (129, 5), (200, 3), (384, 9)])
def test_scales_lie_in_atoms(rows, blocks):
    plain = torch.arange(rows * blocks).remainder(251).to(torch.uint8).view(rows, blocks)
    made = swizzle(plain)
    tiles, along_k = -(-rows // 128), -(-blocks // 4)
    assert made.shape == (tiles * along_k * 512,)
    for r, k in np.ndindex(rows, blocks):
        if (r * 7 + k) % 5 == 0 or r > rows - 2:
            atom = (r // 128) * along_k + k // 4
            assert made[atom * 512 + r % 32 * 16 + r % 128 // 32 * 4 + k % 4] == plain[r, k]
    assert int(made.long().sum()) == int(plain.long().sum())  # padding is zero
    assert torch.equal(unswizzle(made, rows, blocks), plain)


def test_each_matrix_of_a_batch_has_its_atoms():
    x = randn(3, 2, 40, 64)
    data, scales = quantize(x, "mxfp4")
    assert data.shape == (3, 2, 40, 32) and scales.shape == (3, 2, 512)
    alone = quantize(x[1, 1], "mxfp4")
    assert torch.equal(scales[1, 1].view(torch.uint8), alone[1].view(torch.uint8))
    assert torch.equal(dequantize(data, scales, "mxfp4")[1, 1], dequantize(*alone, "mxfp4"))


@pytest.mark.parametrize("name", FORMATS)
def test_a_view_is_read_as_it_is_and_no_rows_are_none(name):
    x = randn(64, 40)
    assert np.array_equal(as_bytes(quantize(x.T, name)[0]), as_bytes(quantize(x.T.contiguous(), name)[0]))
    data, scales = quantize(x.T[:0], name)
    assert data.shape[0] == 0 and scales.numel() == 0 and dequantize(data, scales, name).shape == (0, 64)


@pytest.mark.parametrize("name", MX)
@pytest.mark.parametrize("scaling", ["rceil", "floor"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_block_with_no_number_is_no_number(name, scaling, bad):
    x = randn(2, 64)
    x[0, 40] = bad
    data, scales = quantize(x, name, scaling, swizzled=False)
    assert scales.view(torch.uint8)[0, 1] == 255
    back = dequantize(data, scales, name, swizzled=False)
    assert back[0, 32:].isnan().all() and back[0, :32].isfinite().all() and back[1].isfinite().all()


def test_nvfp4_of_no_numbers():
    x = randn(2, 32)
    x[0, 3], x[1, 20] = math.nan, -math.inf
    back = dequantize(*quantize(x, "nvfp4"), "nvfp4")
    assert back[0, :16].isnan().all() and back[0, 16:].isfinite().all()
    assert back[1, 20] == -6 * 448


@pytest.mark.process
@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
@pytest.mark.parametrize("name", FORMATS)
def test_compiled_and_exported_it_is_the_same(name, backend):
    factor = 0.25 if name == "nvfp4" else None

    class Both(torch.nn.Module):
        def forward(self, x):
            data, scales = quantize(x, name, global_scale=factor)
            return dequantize(data, scales, name, factor) + x

    x, both = wide(24, 64), Both()
    assert torch.equal(torch.compile(both, backend=backend, fullgraph=True)(x), both(x))
    exported = torch.export.export(both, (x,)).module()
    assert torch.equal(exported(x), both(x))


@pytest.mark.parametrize("swizzled", [True, False])
@pytest.mark.parametrize("name", FORMATS)
def test_the_simulated_kernel_has_the_same_bytes(name, swizzled):
    x = wide(40, 64).view(2, 20, 64)[..., ::2].to(torch.bfloat16)
    factor = torch.tensor([[0.3]]) if name == "nvfp4" else None
    for given in (x, x[0], x[:, :0]):
        made = quantize(given, name, global_scale=factor, swizzled=swizzled, simulate=True)
        wanted = quantize(given, name, global_scale=factor, swizzled=swizzled)
        for one, two in zip(made, wanted, strict=True):
            assert (one.shape, one.dtype, one.stride()) == (two.shape, two.dtype, two.stride())
            assert np.array_equal(as_bytes(one), as_bytes(two))


def test_the_simulated_kernel_is_compiled_as_an_operation():
    x = wide(24, 64)
    both = torch.compile(lambda x: quantize(x, "nvfp4", simulate=True), backend="aot_eager", fullgraph=True)(x)
    assert all(np.array_equal(as_bytes(one), as_bytes(two)) for one, two in zip(both, quantize(x, "nvfp4")))
    with FakeTensorMode():
        data, scales = quantize(torch.empty(24, 64, dtype=torch.bfloat16), "nvfp4", simulate=True)
    assert data.shape == (24, 32) and scales.shape == (512,)


X = torch.ones(4, 64)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: quantize(X, "fp4"), "dtype is 'fp4'; it must be one of mxfp8, mxfp4, nvfp4"),
        (lambda: quantize(X[:, :40], "mxfp8"), "x has shape (4, 40); it must be (.., rows, k), and k a multiple of 32"),
        (lambda: quantize(X[0], "nvfp4"), "x has shape (64,)"),
        (lambda: quantize(X.double(), "nvfp4"), "x is torch.float64; it must be torch.float16 or"),
        (lambda: quantize(None, "nvfp4"), "x is None; it must be a tensor"),
        (lambda: quantize(X, "mxfp4", "ceil"), "scaling is 'ceil'; it must be one of rceil, floor"),
        (lambda: quantize(X, "nvfp4", "floor"), "scales of nvfp4 are rounded to nearest"),
        (lambda: quantize(X, "mxfp4", global_scale=1.0), "mxfp4 has scales of blocks alone; nvfp4 takes one"),
        (lambda: quantize(X, "nvfp4", global_scale=0), "global_scale is 0.0; it must be positive and finite"),
        (lambda: quantize(X, "nvfp4", global_scale=torch.tensor(math.nan)), "global_scale is nan"),
        (lambda: quantize(X, "nvfp4", global_scale=torch.ones(2)), "one number of torch.float32 on cpu"),
        (lambda: quantize(X, "nvfp4", global_scale=torch.ones((), device="meta")), "float32 on cpu"),
        (lambda: quantize(X, "nvfp4", swizzled=1), "swizzled is 1; it must be True or False"),
        (lambda: quantize(X, "nvfp4", simulate=1), "simulate is 1; it must be True or False"),
        (lambda: quantize(X.to("meta"), "nvfp4", simulate=True), "x is on meta; simulate=True takes CPU tensors"),
        (lambda: dequantize(X, X, "nvfp4"), "data has shape (4, 64) and type torch.float32; nvfp4 has"),
        (lambda: dequantize(quantize(X, "mxfp8")[0], X, "mxfp8"), "scales has shape (4, 64) and type torch.float32"),
        (
            lambda: dequantize(*quantize(X, "mxfp8", swizzled=False), "mxfp8"),
            "it must be (512,) of torch.float8_e8m0fnu on cpu; swizzled=False takes this shape.",
        ),
    ],
)
def test_what_is_refused(call, said):
    with pytest.raises(InputError) as refused:
        call()
    assert said in str(refused.value) and str(refused.value).endswith(".")
