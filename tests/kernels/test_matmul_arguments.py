"""`MatmulScript`: what it refuses, and the arguments it completes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tilus
import torch

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.kernels import rung
from blackwell_matmul.kernels.host.matmul import MatmulScript

M, N, K = 24, 16, 32


def arguments(dtype: torch.dtype = torch.float16) -> dict[str, Any]:
    a, b, c = torch.zeros(M, K, dtype=dtype), torch.zeros(N, K, dtype=dtype), torch.zeros(M, N, dtype=dtype)
    return {"m": M, "n": N, "k": K, "a": a, "b": b, "c": c}


def shifted(rows: int, columns: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.zeros(rows * columns + 8, dtype=dtype)[1 : rows * columns + 1].view(rows, columns)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_good_arguments_pass(dtype: torch.dtype) -> None:
    MatmulScript.check_arguments(**arguments(dtype))
    MatmulScript.check_arguments(**{**arguments(dtype), "m": np.int32(M)})


def test_inputs_may_share_memory_and_require_grad() -> None:
    a = torch.zeros(M, K, dtype=torch.float16, requires_grad=True)
    MatmulScript.check_arguments(M, M, K, a, a, torch.zeros(M, M, dtype=torch.float16))


def _half(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.float16)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"m": 0}, "m is 0; it must be an integer from 1"),
    ({"n": -16}, "n is -16; it must be"),
    ({"k": 2**31}, "k is 2147483648; it must be"),
    ({"k": 32.0}, "k is 32.0; it must be an integer"),
    ({"m": True}, "m is True; it must be an integer"),
    ({"a": None}, "a is None; it must be a torch.Tensor"),
    (
        {"b": np.zeros((N, K), np.float16)},
        r"b is an array of shape \(16, 32\) and type float16; it must be a torch.Tensor",
    ),
    ({"c": [[0.0]]}, r"c is \[\[0.0\]\]; it must be a torch.Tensor"),
    ({"a": torch.zeros(M, K)}, "a is torch.float32; it must be torch.float16 or torch.bfloat16"),
    ({"b": torch.zeros(N, K, dtype=torch.bfloat16)}, "b is torch.bfloat16 and a is torch.float16; .* one type"),
    ({"b": torch.zeros(N, K, dtype=torch.float16, device="meta")}, "b is meta and a is cpu; .* one device"),
    ({"a": _half(M * K)}, r"a has shape \(768,\); it must be \(m, k\) = \(24, 32\)"),
    ({"b": _half(K, N)}, r"b has shape \(32, 16\); it must be \(n, k\) = \(16, 32\)"),
    ({"c": _half(M, N, 1)}, r"c has shape \(24, 16, 1\); it must be \(m, n\)"),
    ({"a": _half(K, M).T}, r"a has strides \(1, 24\) .* \(32, 1\); a.contiguous\(\) is"),
    ({"a": _half(M, 2 * K)[:, :K]}, r"a has strides \(64, 1\)"),
    ({"b": _half(1, K).expand(N, K)}, r"b has strides \(0, 1\)"),
    ({"a": _half(M, K).to_sparse()}, "a has layout torch.sparse_coo"),
    ({"n": 2**31 - 8}, "n is 2147483640; kernels count tiles in 32 bits, for 2147483392 at most"),
    ({"b": shifted(N, K)}, "b starts 2 bytes past a multiple of 16"),
    ({"c": _half(M, N).requires_grad_()}, r"c requires grad, .*c.detach\(\)"),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=[message[:30] for _, message in BAD])
def test_bad_arguments_get_one_sentence(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        MatmulScript.check_arguments(**{**arguments(), **change})
    assert str(caught.value).endswith(".")


def test_the_output_overlaps_no_input() -> None:
    pool = _half(2 * M * M)
    a, b, c = pool[: M * M].view(M, M), _half(M, M), pool[M * M - 8 :][: M * M].view(M, M)
    with pytest.raises(InputError, match="c shares memory with a"):
        MatmulScript.check_arguments(M, M, M, a, b, c)
    with pytest.raises(InputError, match="c shares memory with b"):
        MatmulScript.check_arguments(M, M, M, b, a, c)
    MatmulScript.check_arguments(M, M, M, a, b, pool[M * M :].view(M, M))


def test_complete_gives_the_type_and_the_schedule() -> None:
    call = tuple(arguments(torch.bfloat16).values())
    found = rung("v1").complete({"block_n": 128}, call, "sm_100a")
    assert found == {"dtype": tilus.bfloat16, "block_m": 128, "block_n": 128, "block_k": 32, "e_block_n": 64}


def test_complete_refuses_what_cannot_run() -> None:
    call = tuple(arguments().values())
    assert rung("v0").complete({"dtype": tilus.float16}, call, "sm_100a")["dtype"] == tilus.float16
    with pytest.raises(InputError, match=r"dtype is pinned to bfloat16 and the tensors are torch\.float16"):
        rung("v0").complete({"dtype": tilus.bfloat16}, call, "sm_100a")
    with pytest.raises(InputError, match=r"sm_90a \(H100, H200\) has no tcgen05"):
        rung("v0").complete({}, call, "sm_90a")
    with pytest.raises(InputError, match="K = 31"):
        rung("v0").complete({}, (M, N, 31, _half(M, 31), _half(N, 31), _half(M, N)), "sm_100a")
