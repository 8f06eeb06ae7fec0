"""Which kernel inductor chose for the matmuls, as its generated code tells.

The code defines a Triton kernel for each template that won (`triton_tem_…`) and calls what it did not generate by name:
`extern_kernels.mm` from Python, `aoti_torch_cuda_mm_out` from the C++ wrapper. Only winners stand in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_KERNEL = re.compile(r"(triton_\w+) = async_compile\.triton\('\1', '''(.*?)'''", re.DOTALL)
_COMMENT = re.compile(r"^\s*(#|//).*$", re.MULTILINE)
_LIBRARY = re.compile(
    r"(?P<matmul>(?:extern_kernels\.|aten\.|aoti_torch_cuda_)\w*mm\w*)"
    r"|(?P<attention>(?:aten\.|aoti_torch_cuda_)_scaled_dot_product_\w+)"
    r"|(?P<cutlass>async_compile\.(?:cuda|cutlass)\()"
)
_LIBRARIES = {"matmul": "cuBLAS", "attention": "aten attention", "cutlass": "CUTLASS"}
_LOAD = re.compile(r"load_tensor_descriptor|_descriptor_load|make_tensor_descriptor\(.*\)\.load|desc\w*\.load\(")
_STORE = re.compile(r"store_tensor_descriptor|_descriptor_store|make_tensor_descriptor\(.*\)\.store|desc\w*\.store\(")
_SYMBOL = re.compile(r"^\s*(?:int64_t |auto )?s\d+ = |\bks\d+\b", re.MULTILINE)


def template_of(code: str) -> str:
    """The kinds of kernels behind a program's matmuls, such as "cuBLAS + Triton, TMA loads"."""
    bare = _COMMENT.sub("", code)
    kinds = dict.fromkeys((*_libraries(_KERNEL.sub("", bare)), *_templates(bare)))
    return " + ".join(kinds) or ("Triton, fused loops" if _KERNEL.search(bare) else "no kernel of a matmul")


def _libraries(code: str) -> Iterator[str]:
    for found in _LIBRARY.finditer(code):
        yield _LIBRARIES[found.lastgroup or ""]


def _templates(code: str) -> Iterator[str]:
    for name, source in _KERNEL.findall(code):
        if name.startswith("triton_tem_"):
            yield f"Triton, {_tma(source)}{', warp-specialized' if 'warp_specialize=True' in _bound(source) else ''}"
        elif _LOAD.search(source) or _STORE.search(source):
            yield "loops with TMA"


def _tma(source: str) -> str:
    loads, stores = _LOAD.search(source) is not None, _STORE.search(source) is not None
    return "TMA loads+stores" if loads and stores else "TMA loads" if loads else "TMA stores" if stores else "no TMA"


def _bound(source: str) -> str:
    """With WARP_SPECIALIZE in place: a kernel's constants are assignments at its head."""
    value = re.search(r"WARP_SPECIALIZE : tl\.constexpr = (\w+)", source)
    return source.replace("warp_specialize=WARP_SPECIALIZE", f"warp_specialize={value[1]}") if value else source


def is_dynamic(code: str) -> bool:
    """Whether sizes are symbols in it: s0, or ks0 inside a kernel. Such kernels are several times slower."""
    return _SYMBOL.search(_COMMENT.sub("", code)) is not None
