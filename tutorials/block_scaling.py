"""Block-scaled numbers in numpy, and the pictures of the lesson about them."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
from canvas import COPY, COPY_LIGHT, FAINT, INK, LINE, QUIET, STORE, TENSOR, TENSOR_LIGHT, WARP, Canvas

FP4, E4M3 = ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e4m3fn


def power_of_two(largest: np.ndarray, top: float) -> np.ndarray:
    """The scale of each block as e8m0 has it: the least power of two that brings the largest number to `top`."""
    return 2.0 ** np.ceil(np.log2(np.maximum(largest, 2.0**-100) / top))


def eight_bits(largest: np.ndarray, top: float) -> np.ndarray:
    """The scale of each block as e4m3, and a float32 of the whole tensor: so that the largest one becomes 448."""
    whole = np.float32(largest.max() / (448 * top))
    return np.maximum(largest / top / whole, 2.0**-6).astype(E4M3).astype(float) * whole


def one_scale(largest: np.ndarray, top: float) -> np.ndarray:
    return np.full_like(largest, largest.max() / top)


FORMATS: dict[str, tuple[type, float, int, Callable[[np.ndarray, float], np.ndarray]]] = {
    "fp8, one scale for all": (E4M3, 448, 32, one_scale),
    "mxfp8": (E4M3, 448, 32, power_of_two),
    "nvfp4": (FP4, 6, 16, eight_bits),
    "mxfp4": (FP4, 6, 32, power_of_two),
    "fp4, one scale for all": (FP4, 6, 32, one_scale),
}
"""Formats: the type of an element, its largest number, the block along k, and how scales are chosen."""


def quantised(x: np.ndarray, name: str) -> np.ndarray:
    """The numbers that a format keeps of x, whose rows are multiples of 32 long."""
    element, top, block, choose = FORMATS[name]
    blocks = x.reshape(-1, block)
    scales = choose(np.abs(blocks).max(axis=1, keepdims=True), top)
    return (np.clip(blocks / scales, -top, top).astype(element).astype(float) * scales).reshape(x.shape)


def decibels(x: np.ndarray, kept: np.ndarray) -> float:
    """Signal over error: 20 dB are an error of a tenth, 40 dB of a hundredth."""
    return float(10 * np.log10((x**2).sum() / ((x - kept) ** 2).sum()))


def samples() -> dict[str, np.ndarray]:
    """Data as it looks in a model: weights; activations of which few channels are large; a tensor with long tails."""
    random = np.random.default_rng(0)
    activations = random.normal(size=(512, 1024))
    activations[:, random.choice(1024, 8, replace=False)] *= 40
    return {
        "weights\n(normal)": random.normal(0, 0.02, (512, 1024)),
        "activations\n(8 of 1024 channels 40 x)": activations,
        "gradients\n(Student's t, 3)": random.standard_t(3, (512, 1024)),
    }


BANDS = (WARP, COPY, TENSOR, STORE)
"""Colours of the rows 0-31, 32-63, 64-95 and 96-127 of an atom."""


def scale_atom() -> Canvas:
    """An atom of scales three times: as a matrix, in global and shared memory, and in tensor memory."""
    canvas = Canvas(7.6, 3.75, "An atom: the scales of 128 rows and 4 blocks along k, 512 bytes")
    top, height = 0.98, 2.08
    canvas.text(0.3, 0.58, "the matrix of scales", 8, INK, weight="bold")
    for band, color in enumerate(BANDS):
        y = top + band * height / 4
        canvas.box(0.75, y, 0.88, height / 4, color)
        canvas.text(0.68, y + height / 8, f"rows\n{32 * band}-{32 * band + 31}", 6, ha="right")
    for block in range(4):
        canvas.text(0.86 + 0.22 * block, top - 0.1, str(block), 6.5, ha="center")
        canvas.line(0.75 + 0.22 * block, top, 0.75 + 0.22 * block, top + height, "white", 0.4)
    canvas.text(0.75, top - 0.25, "block", 6.5)

    left, cell = 2.35, 0.1
    canvas.text(left - 0.1, 0.58, "global and shared memory", 8, INK, weight="bold")
    canvas.text(left, top - 0.25, "bytes 0 to 15 of each row of 16", 6.5)
    shown = (0, 1, 2, None, 31)
    for place, row in enumerate(shown):
        y = top + place * height / 5
        if row is None:
            canvas.text(left + 0.8, y + height / 10, "...", 9, ha="center")
            continue
        canvas.text(left - 0.06, y + height / 10, f"{16 * row}", 6, ha="right")
        for band, color in enumerate(BANDS):
            canvas.box(
                left + 4 * cell * band, y + 0.03, 4 * cell, height / 5 - 0.06, color, f"row\n{32 * band + row}", 6
            )
    canvas.text(left, top + height + 0.14, "byte (r % 32) * 16 + (r // 32) * 4 + block", 6.5, INK)

    left, column = 5.05, 0.42
    canvas.text(left - 0.1, 0.58, "tensor memory", 8, INK, weight="bold")
    canvas.text(left, top - 0.25, "4 columns of 32 bits, a byte for each block", 6.5)
    for quarter in range(4):
        y = top + quarter * height / 4
        canvas.text(left - 0.06, y + height / 8, f"lanes\n{32 * quarter}-{32 * quarter + 31}", 6, ha="right")
        for band, color in enumerate(BANDS):
            rows = f"{32 * band}-{32 * band + 31}"
            canvas.box(left + column * band, y, column, height / 4, color, rows, 6, alpha=1 if quarter == 0 else 0.62)
    canvas.text(left, top + height + 0.14, "row r: lane r % 32, column r // 32, four times", 6.5, INK)
    canvas.text(
        0.3, 3.48, "TMA brings an atom as it lies. tcgen05.cp puts it into 4 columns and repeats it for the four "
        "quarters of the lanes, which the tensor core reads.", 7,
    )  # fmt: skip
    return canvas


def scale_columns() -> Canvas:
    """Tensor memory of a kernel for pairs, nvfp4 256 x 256 x 256: two accumulators that share columns, and scales."""
    canvas = Canvas(7.6, 3.1, "512 columns for two accumulators of 256 and the scales of a k-tile (nvfp4, k = 256)")
    left, width, y, tall = 0.75, 6.4, 0.95, 0.5

    def at(column: int) -> float:
        return left + column * width / 512

    def span(first: int, end: int, row: int, color: str, text: str, **options: object) -> None:
        canvas.box(at(first), y + row * (tall + 0.12), at(end) - at(first), tall, color, text, 7, **options)

    for row in range(3):
        canvas.box(left, y + row * (tall + 0.12), width, tall, "#fafafa", edgecolor=LINE)
    for column in (0, 208, 256, 464, 512):
        canvas.line(at(column), y - 0.08, at(column), y + 3 * tall + 0.32, LINE, dashed=True)
        canvas.text(at(column), y - 0.17, str(column), 6.5, ha="center")
    span(0, 256, 0, TENSOR, "")
    span(208, 464, 1, TENSOR_LIGHT, "")
    canvas.text(at(104), y + tall / 2, "even tiles", 7.5, "white", ha="center")
    canvas.text(at(360), y + tall / 2 + tall + 0.12, "odd tiles", 7.5, "white", ha="center")
    for row, color in ((0, TENSOR), (1, TENSOR_LIGHT)):
        span(208, 256, row, color, "both", hatch="////")
    span(464, 480, 2, COPY, "A", ink="white")
    span(480, 512, 2, COPY_LIGHT, "B", ink=INK)
    canvas.text(
        at(464) - 0.08,
        y + 2 * (tall + 0.12) + tall / 2,
        "scales, 4 columns an atom: 4 atoms of A, 8 of B",
        7,
        ha="right",
    )
    canvas.text(
        left, 2.93, "The epilogue drains the 48 columns that both have first, and tells it by a barrier of their own: "
        "then the next tile may begin.", 7,
    )  # fmt: skip
    return canvas


def scale_error() -> Canvas:
    """Signal over error of each format, on data as models have it."""
    canvas = Canvas(7.6, 3.3, "What each format keeps: signal over error in dB (more is better)")
    colors = dict(zip(FORMATS, (QUIET, WARP, COPY, TENSOR, LINE), strict=True))
    left, bottom, tall, group, bar = 0.75, 2.35, 1.55, 2.2, 0.34
    for value in (0, 10, 20, 30):
        height = bottom - value / 35 * tall
        canvas.axes.plot([left, 7.3], [height, height], color=FAINT, linewidth=0.8, zorder=0.5)
        canvas.text(left - 0.08, height, str(value), 6.5, ha="right")
    for place, (name, x) in enumerate(samples().items()):
        for number, (kind, color) in enumerate(colors.items()):
            found = decibels(x, quantised(x, kind))
            x0, height = left + 0.2 + place * group + number * (bar + 0.04), found / 35 * tall
            canvas.box(x0, bottom - height, bar, height, color)
            canvas.text(x0 + bar / 2, bottom - height - 0.09, f"{found:.0f}", 6.5, INK, ha="center")
        canvas.text(left + 0.2 + place * group + 2.5 * bar + 0.08, bottom + 0.2, name, 7, INK, ha="center")
    for number, (kind, color) in enumerate(colors.items()):
        x0 = left + (0, 1.75, 2.65, 3.5, 4.35)[number]
        canvas.box(x0, 2.93, 0.13, 0.13, color)
        canvas.text(x0 + 0.2, 2.995, kind, 7)
    return canvas
