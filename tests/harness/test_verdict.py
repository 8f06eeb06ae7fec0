"""`check_matmul` finds planted faults, places them, and lets every honest rounding pass."""

import math

import pytest
import torch

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.harness import check_matmul
from blackwell_matmul.harness import verdict as module

DTYPES = [torch.float16, torch.bfloat16]


def product(m=256, n=384, k=512, dtype=torch.float16, seed=0):
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.randn(rows, k, generator=generator).to(dtype) for rows in (m, n))
    return a, b, (a.float() @ b.float().T).to(dtype)


def exact_product(a, b):
    return a.double() @ b.double().T


def split_k_product(a, b, step):
    """fp32 accumulation in another order: k in steps, summed one after the other."""
    total = torch.zeros(a.shape[0], b.shape[0])
    for k in range(0, a.shape[1], step):
        total += a[:, k : k + step].float() @ b[:, k : k + step].float().T
    return total.to(a.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m, n, k", [(1, 1, 1), (1, 8, 8), (7, 9, 4096), (256, 384, 512), (129, 65, 33)])
def test_right_products_pass(m, n, k, dtype):
    a, b, c = product(m, n, k, dtype)
    verdict = check_matmul(a, b, c)
    assert verdict.ok, verdict.message
    assert verdict.message.startswith("correct: ")
    assert verdict.bad_tiles == verdict.bad_rows == verdict.bad_columns == ()
    assert check_matmul(a, b, exact_product(a, b).to(dtype)).ok


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("step", [8, 16, 64])
def test_any_order_of_accumulation_passes(dtype, step):
    for seed in range(20):
        a, b, _ = product(3, 5, 2048, dtype, seed)
        verdict = check_matmul(a, b, split_k_product(a, b, step))
        assert verdict.ok, (seed, verdict.message)
    a, b, _ = product(512, 512, 2048, dtype)
    assert check_matmul(a, b, split_k_product(a, b, step)).ok


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [16, 256, 2048])
def test_a_c_of_fp32_is_held_to_fp32_in_any_order(dtype, k):
    a, b, _ = product(64, 96, k, dtype)
    sums = torch.zeros(64, 96)
    for at in range(k):
        sums += torch.outer(a[:, at].float(), b[:, at].float())
    for right in (sums, a.float() @ b.float().T, exact_product(a, b).float()):
        verdict = check_matmul(a, b, right)
        assert verdict.ok, verdict.message
        assert verdict.reference_error < 1e-3
    assert not check_matmul(a, b, sums.to(dtype).float()).ok  # rounded to 16 bits on the way


def test_where_16_bits_are_exact_fp32_is_too():
    a, b = torch.ones(4, 64).half(), torch.ones(4, 64).half()
    c = (a @ b.T).float()
    assert check_matmul(a, b, c).message == "correct: exact."
    c[1, 2] += 2**-16
    assert not check_matmul(a, b, c).ok


def test_all_positive_operands_pass_in_any_order():
    a, b = torch.rand(64, 8192).half(), torch.rand(64, 8192).half()
    assert check_matmul(a, b, split_k_product(a, b, 16)).ok


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_wrong_element_is_found_even_where_c_is_small(dtype):
    a, b, c = product(dtype=dtype)
    i, j = divmod(int(c.abs().argmin()), c.shape[1])
    c[i, j] = 0.05  # far below the largest rounding error of C, and still wrong
    verdict = check_matmul(a, b, c)
    assert not verdict.ok
    assert (verdict.wrong, verdict.unwritten, verdict.worst) == (1, 0, (i, j))
    assert verdict.bad_rows == ((i, i),) and verdict.bad_columns == ((j, j),)
    assert verdict.bad_tiles == ((i // 128, j // 128),)
    assert f"wrong: 1 of {256 * 384} elements in 1 of 6 tiles of 128x128" in verdict.message


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_missing_product_is_found(dtype):
    a, b, _ = product(128, 128, 64, dtype)
    short = a.clone()
    short[:, 63] = 0
    verdict = check_matmul(a, b, (short.float() @ b.float().T).to(dtype))
    assert not verdict.ok and verdict.wrong > 128 * 128 // 2


def test_a_wrong_tile_is_named():
    a, b, c = product()
    c[128:256, 128:256] = c[0:128, 0:128].clone()
    verdict = check_matmul(a, b, c)
    assert verdict.bad_tiles == ((1, 1),)
    assert verdict.bad_rows == ((128, 255),) and verdict.bad_columns == ((128, 255),)
    assert "1 of 6 tiles of 128x128 (tile (1, 1)), rows 128..255 and columns 128..255" in verdict.message


def test_a_wrong_column_strip_is_named_in_the_tiles_of_the_schedule():
    a, b, c = product()
    c[:, 32:64] += 1
    c[:, 160:192] += 1
    verdict = check_matmul(a, b, c, tile_m=64, tile_n=128)
    assert verdict.bad_columns == ((32, 63), (160, 191)) and verdict.bad_rows == ((0, 255),)
    assert verdict.bad_tiles == tuple((row, column) for row in range(4) for column in (0, 1))
    assert "columns 32..63, 160..191" in verdict.message


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_an_unwritten_element_is_wrong(value):
    a, b, c = product()
    c[255, 383] = value
    verdict = check_matmul(a, b, c)
    assert not verdict.ok and (verdict.wrong, verdict.unwritten) == (1, 1)
    assert verdict.max_abs_error == math.inf and verdict.worst == (255, 383)
    assert "as if never written" in verdict.message


def test_unwritten_memory_as_a_whole_is_wrong():
    a, b, c = product()
    verdict = check_matmul(a, b, torch.full_like(c, math.nan))
    assert verdict.wrong == verdict.unwritten == c.numel() and len(verdict.bad_tiles) == 6


def test_all_zero_is_wrong():
    a, b, c = product()
    assert check_matmul(a, b, torch.zeros_like(c)).wrong > 0.99 * c.numel()
    assert check_matmul(torch.zeros_like(a), b, torch.zeros_like(c)).ok


@pytest.mark.parametrize("dtype", DTYPES)
def test_two_units_in_the_last_place_are_wrong_and_the_nearest_value_is_right(dtype):
    a, b, _ = product(dtype=dtype)
    c = exact_product(a, b).to(dtype)
    raw = c.view(torch.int16)
    raw[3, 5] += 2
    verdict = check_matmul(a, b, c)
    assert not verdict.ok and verdict.bad_rows == ((3, 3),) and verdict.bad_columns == ((5, 5),)
    raw[3, 5] -= 2
    assert check_matmul(a, b, c).ok


@pytest.mark.parametrize("dtype", DTYPES)
def test_where_torch_is_exact_one_unit_in_the_last_place_is_wrong(dtype):
    a = torch.randint(-2, 3, (64, 16)).to(dtype)
    b = torch.randint(-2, 3, (64, 16)).to(dtype)
    c = exact_product(a, b).to(dtype)
    right = check_matmul(a, b, c)
    assert right.ok and right.max_abs_error == 0 and right.message == "correct: exact."
    i, j = map(int, (c != 0).nonzero()[0])
    c.view(torch.int16)[i, j] += 1
    wrong = check_matmul(a, b, c)
    assert not wrong.ok and wrong.ratio == math.inf and "where torch's own product is exact" in wrong.message


def test_the_worst_rounding_of_a_tiny_product_passes():
    a, b = torch.tensor([[1.0, 2**-11]]).half(), torch.tensor([[1.0, 1.0]]).half()
    assert check_matmul(a, b, torch.tensor([[1.0]]).half()).ok  # 1 + half a unit: a tie, to even
    assert check_matmul(a, b, torch.tensor([[1 + 2**-10]]).half()).ok  # the other neighbour is as near
    assert not check_matmul(a, b, torch.tensor([[1 - 2**-10]]).half()).ok


def test_a_sum_kept_in_half_precision_is_wrong():
    a, b, _ = product()
    steps = (exact_product(a[:, k : k + 64], b[:, k : k + 64]).half() for k in range(0, 512, 64))
    assert not check_matmul(a, b, sum(steps)).ok


def test_infinity_and_nan_that_the_product_has_are_right():
    a, b, _ = product(8, 8, 16)
    a[0, 0], a[1, 0], a[2] = math.inf, math.nan, 30000.0
    b[0] = 30000.0
    c = exact_product(a, b).half()
    assert not c[:2].isfinite().any() and c[2, 0] == math.inf
    assert check_matmul(a, b, c).ok
    for i, j in [(0, 0), (1, 3), (2, 0)]:
        broken = c.clone()
        broken[i, j] = 1.0
        verdict = check_matmul(a, b, broken)
        assert not verdict.ok and verdict.bad_rows == ((i, i),) and verdict.bad_columns == ((j, j),)


def test_row_blocks_do_not_change_the_verdict(monkeypatch):
    a, b, c = product()
    c[200, 300] += 1
    whole = check_matmul(a, b, c)
    monkeypatch.setattr(module, "BLOCK_ELEMENTS", 384 * 100)
    blocks = check_matmul(a, b, c)
    assert (blocks.wrong, blocks.bad_tiles, blocks.bad_rows, blocks.worst) == (1, ((1, 2),), ((200, 200),), (200, 300))
    assert blocks.ratio == pytest.approx(whole.ratio, rel=1e-3)


@pytest.mark.parametrize(
    "a, b, c, reason",
    [
        (torch.ones(2, 3), torch.ones(4, 5), torch.ones(2, 4), r"A\[2, 3\], B\[4, 5\], C\[2, 4\]"),
        (torch.ones(2, 3), torch.ones(4, 3), torch.ones(4, 2), r"they must be A\[m, k\]"),
        (torch.ones(2), torch.ones(4, 3), torch.ones(4, 2), r"A has shape \(2,\)"),
        (torch.ones(2, 3), torch.ones(4, 3), torch.ones(0, 4), r"C has shape \(0, 4\)"),
        (torch.ones(2, 3), torch.ones(4, 3), torch.ones(2, 4).int(), "C is torch.int32"),
        (torch.ones(2, 3), torch.ones(4, 3).half(), torch.ones(2, 4), "B is torch.float16"),
        (torch.ones(2, 3), torch.ones(4, 3), torch.ones(2, 4, device="meta"), "C is on meta"),
        (torch.ones(2, 3), None, torch.ones(2, 4), "B is None"),
    ],
)
def test_operands_that_do_not_fit_get_one_sentence(a, b, c, reason):
    with pytest.raises(InputError, match=reason):
        check_matmul(a, b, c)


@pytest.mark.parametrize("tile", [0, -1, 1.5, "x"])
def test_tiles_that_are_no_size_get_one_sentence(tile):
    with pytest.raises(InputError, match="tile_n is"):
        check_matmul(*product(1, 1, 1), tile_n=tile)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("out", [torch.float16, torch.float32, torch.float8_e4m3fn])
def test_8_bit_floats_are_judged_too(dtype, out):
    a, b, _ = product(24, 16, 64, torch.float32)
    a, b = a.to(dtype), b.to(dtype)
    c = (a.float() @ b.float().T).to(out)
    assert check_matmul(a, b, c).ok
    assert not check_matmul(a, b, (c.float() + 64).to(out)).ok


def test_packed_types_are_refused():
    packed = torch.zeros(8, 8, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    with pytest.raises(InputError, match=r"A is torch\.float4_e2m1fn_x2; check_matmul compares floating-point"):
        check_matmul(packed, packed, torch.zeros(8, 8))


def test_the_verdict_is_the_same_whatever_torch_is_set_to():
    a, b, c = product(64, 64, 64)
    wrong = c.clone()
    wrong[3, 5] += 1
    right, found = check_matmul(a, b, c), check_matmul(a, b, wrong)
    assert right.ok and not found.ok
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.device("meta"), torch.inference_mode():
        assert (check_matmul(a, b, c), check_matmul(a, b, wrong)) == (right, found)


@pytest.mark.filterwarnings("error")
def test_operands_that_require_grad_are_compared_in_silence():
    a, b, c = product(8, 8, 8)
    assert check_matmul(a.requires_grad_(), b, c.requires_grad_()).ok
