"""One function for each instruction of PTX, in files by family; importing this package registers all of them."""

from blackwell_matmul.emulator.instructions import (
    carries,
    cluster_launch,
    control,
    convert,
    copies,
    floats,
    fragments,
    groups,
    integers,
    mbarriers,
    moves,
    tensor_cores,
    video,
)
from blackwell_matmul.emulator.instructions.matrices import wmma

__all__ = [
    "carries", "cluster_launch", "control", "convert", "copies", "floats", "fragments", "groups", "integers",
    "mbarriers", "moves", "tensor_cores", "video", "wmma",
]  # fmt: skip
