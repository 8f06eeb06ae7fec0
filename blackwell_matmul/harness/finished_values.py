"""`Finishing`: what an `Epilogue` makes of a product, by torch, and how exact fp32 can be in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from blackwell_matmul.ops.finished import finished
from blackwell_matmul.problem.form import Epilogue

ROUNDINGS = 2.0**-22
"""What a few operations in fp32 may cost, of the size of what they add up."""

STEEPEST = 2.0
"""More than the slope of any activation, 1.13 at most, and what its approximation in fp32 costs beside it."""


@dataclass(frozen=True, eq=False)
class Finishing:
    """An epilogue with what it reads, for one matrix. tensors: bias, residual, scale_a and scale_b; None: no such."""

    epilogue: Epilogue
    tensors: Sequence[Tensor | None]

    def of_rows(self, first: int, count: int) -> Finishing:
        bias, residual, scale_a, scale_b = self.tensors
        rows = slice(first, first + count)
        kept = None if residual is None else residual[rows]
        scales = scale_a if scale_a is None or scale_a.numel() == 1 else scale_a.flatten()[rows]
        return replace(self, tensors=(bias, kept, scales, scale_b))

    def __call__(self, z: Tensor) -> Tensor:
        """In the type of z, a product."""
        given = [None if each is None else each.to(z.dtype) for each in self.tensors]
        return finished(z, given, self.epilogue.activation, self.epilogue.alpha, self.epilogue.beta)

    def noise(self, z: Tensor, noise: Tensor) -> Tensor:
        """What fp32 may cost in the result, where it costs `noise` in z."""
        sizes = self._of_sizes()
        size, scaled = sizes(z.abs()), replace(sizes, tensors=(None, None, *sizes.tensors[2:]))
        before = scaled(noise) + ROUNDINGS * size
        if self.epilogue.activation == "none":
            return before
        if self.epilogue.columns_of_c == 1:
            return STEEPEST * before
        return STEEPEST * (before[..., 0::2] * size[..., 1::2] + before[..., 1::2] * size[..., 0::2])

    def _of_sizes(self) -> Finishing:
        """The same without its activation, and without signs."""
        how = self.epilogue
        plain = replace(how, activation="none", alpha=abs(how.alpha), beta=abs(how.beta))
        return Finishing(plain, [None if each is None else each.abs() for each in self.tensors])
