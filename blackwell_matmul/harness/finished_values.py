"""`Finishing`: an `Epilogue` applied to a product by torch, and its fp32 error bound."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from blackwell_matmul.ops.finished import EpilogueTensors, finished
from blackwell_matmul.problem.form import Epilogue

ROUNDINGS = 2.0**-22
"""Relative error of a few fp32 operations."""

STEEPEST = 2.0
"""Bound on the slope of any activation, 1.13, with its error in fp32."""


@dataclass(frozen=True, eq=False)
class Finishing:
    """An epilogue, with its tensors for one matrix of a batch."""

    epilogue: Epilogue
    tensors: EpilogueTensors

    def of_rows(self, first: int, count: int) -> Finishing:
        _, residual, scale_a, _ = self.tensors
        rows = slice(first, first + count)
        kept = None if residual is None else residual[rows]
        scales = scale_a if scale_a is None or scale_a.numel() == 1 else scale_a.flatten()[rows]
        return replace(self, tensors=self.tensors._replace(residual=kept, scale_a=scales))

    def __call__(self, z: Tensor) -> Tensor:
        """Return the finished product, in the type of z."""
        given = EpilogueTensors(*[None if each is None else each.to(z.dtype) for each in self.tensors])
        return finished(z, given, self.epilogue.activation, self.epilogue.alpha, self.epilogue.beta)

    def noise(self, z: Tensor, noise: Tensor) -> Tensor:
        """Return fp32's error bound of the result, for the error `noise` of z."""
        sizes = self._of_sizes()
        size, scaled = sizes(z.abs()), replace(sizes, tensors=sizes.tensors._replace(bias=None, residual=None))
        before = scaled(noise) + ROUNDINGS * size
        if self.epilogue.activation == "none":
            return before
        if self.epilogue.columns_of_c == 1:
            return STEEPEST * before
        return STEEPEST * (before[..., 0::2] * size[..., 1::2] + before[..., 1::2] * size[..., 0::2])

    def _of_sizes(self) -> Finishing:
        """Return the epilogue with absolute values, without its activation."""
        how = self.epilogue
        plain = replace(how, activation="none", alpha=abs(how.alpha), beta=abs(how.beta))
        return Finishing(plain, EpilogueTensors(*[None if each is None else each.abs() for each in self.tensors]))
