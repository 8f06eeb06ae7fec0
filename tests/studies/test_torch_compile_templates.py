"""What inductor's code says of its matmuls: excerpts of code that torch 2.11 generated on an H200."""

from __future__ import annotations

import pytest
import torch

from blackwell_matmul_studies.torch_compile.templates import is_dynamic, template_of

CUBLAS = """
            # Topologically Sorted Source Nodes: [matmul], Original ATen: [aten.permute, aten.mm]
            extern_kernels.mm(arg1_1, reinterpret_tensor(arg0_1, (1024, 2048), (1, 1024), 0), out=buf0)
"""
CUBLAS_FROM_CPP = """
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cuda_mm_out(buf2, buf1, arg2_1));
"""
FP8 = "extern_kernels._scaled_mm(arg1_1, arg0_1, arg2_1, arg2_1, out_dtype=torch.bfloat16, out=buf0)"
ATTENTION = "buf0 = torch.ops.aten._scaled_dot_product_cudnn_attention.default(arg0_1, arg0_1, arg0_1, None, False)"
CALL = "            triton_tem_fused_mm_permute_0.run(arg1_1, arg0_1, buf0, 64, 1, 1, stream=stream0)\n"
LOADED = """
            a = tl.load_tensor_descriptor(
                a_desc,
                [rm, rk] if A_ROW_MAJOR else [rk, rm],
            )
"""
PLAIN = """
    pid = tl.program_id(0).to(INDEX_DTYPE)
        a = tl.load(A + (xindex))
    tl.store(out_ptr0 + (tl.broadcast_to(xindex, [BLOCK_M, BLOCK_N])), acc, mask)
"""
STORED_PLAINLY = "        tl.store(out_ptr0 + (tl.broadcast_to(xindex, [BLOCK_M, BLOCK_N])), acc, xmask & ymask)\n"
STORED = "        tma_descriptor0.store([xoffset, yoffset], tl.broadcast_to(acc, [XBLOCK, YBLOCK]).to(tl.bfloat16))\n"
SILU = """
    tmp0 = tl.make_tensor_descriptor(in_out_ptr0, shape=[2097152], strides=[1], block_shape=[XBLOCK]).load([xoffset])
    tl.make_tensor_descriptor(in_out_ptr0, shape=[2097152], strides=[1], block_shape=[XBLOCK]).store([xoffset], tmp7)
"""
BLACKWELL = """
    WARP_SPECIALIZE : tl.constexpr = True
    for tile_id in tl.range(start_pid, num_tiles, NUM_SMS, flatten=FLATTEN, warp_specialize=WARP_SPECIALIZE):
"""


def kernel(*parts: str, name: str = "triton_tem_fused_mm_permute_0") -> str:
    return f"{name} = async_compile.triton('{name}', '''\nimport triton\n{''.join(parts)}''', device_str='cuda')\n"


@pytest.mark.parametrize(
    ("code", "template"),
    [
        (CUBLAS, "cuBLAS"),
        (CUBLAS_FROM_CPP, "cuBLAS"),
        (FP8, "cuBLAS"),
        (CUBLAS + ATTENTION + CUBLAS, "cuBLAS + aten attention"),
        (kernel(PLAIN) + CALL, "Triton, no TMA"),
        (kernel(LOADED, STORED_PLAINLY) + CALL, "Triton, TMA loads"),
        (kernel(LOADED, STORED) + CALL, "Triton, TMA loads+stores"),
        (kernel(BLACKWELL, LOADED, STORED), "Triton, TMA loads+stores, warp-specialized"),
        (kernel(BLACKWELL.replace("True", "False"), LOADED, STORED), "Triton, TMA loads+stores"),
        (CUBLAS + kernel(SILU, name="triton_poi_fused_silu_1"), "cuBLAS + loops with TMA"),
        (CUBLAS + kernel(PLAIN, name="triton_poi_fused_silu_1"), "cuBLAS"),
        (kernel(PLAIN, name="triton_red_fused_mm_0"), "Triton, fused loops"),
        ("def call(args): return args", "no kernel of a matmul"),
    ],
)
def test_the_template_is_read_from_the_code(code, template):
    assert template_of(code) == template


def test_what_a_comment_names_is_not_what_runs():
    mapped = "#   %mm : Tensor = call_function[target=torch.ops.aten.mm.default](args = (%arg1_1, %permute))\n"
    assert template_of(mapped + kernel(LOADED)) == "Triton, TMA loads"


@pytest.mark.parametrize(
    ("code", "dynamic"),
    [
        ("        s52 = arg0_1\n", True),
        ("    int64_t s52 = arg0_1;\n", True),
        (kernel("    M = ks0\n"), True),
        (kernel("    M = 512\n"), False),
        ("# s52 = arg0_1\n", False),
    ],
)
def test_symbols_for_sizes_are_found(code, dynamic):
    assert is_dynamic(code) is dynamic


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
def test_the_installed_inductor_names_sizes_like_that(dynamic):
    from torch._inductor.utils import fresh_cache, run_and_get_code

    with fresh_cache():
        product = torch.compile(lambda a, b: a @ b.T, dynamic=dynamic, fullgraph=True)
        _, codes = run_and_get_code(product, torch.ones(24, 40), torch.ones(56, 40))
    assert is_dynamic("\n".join(codes)) is dynamic
