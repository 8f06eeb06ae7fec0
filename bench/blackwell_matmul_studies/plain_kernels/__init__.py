"""Plain kernels: a copy and an add without TMA, to compare the primitives with."""

from blackwell_matmul_studies.plain_kernels.plain_add import PlainAdd
from blackwell_matmul_studies.plain_kernels.plain_copy import PlainCopy

__all__ = ["PlainAdd", "PlainCopy"]
