"""`Finishing`: applies an `Epilogue` to a product in torch, and bounds its error in fp32."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from blackwell_matmul.ops.finished import EpilogueTensors, finished
from blackwell_matmul.problem.form import Epilogue

ROUNDINGS = 2.0**-22
"""Bound on the relative error of the fp32 operations of an epilogue."""

STEEPEST = 2.0
"""Bound on the slope of any activation. The largest slope is 1.13; the rest covers errors of fp32."""


@dataclass(frozen=True, eq=False)
class Finishing:
    """Function that applies an epilogue. tensors: the epilogue's tensors for one matrix of a batch."""

    epilogue: Epilogue
    tensors: EpilogueTensors

    def of_rows(self, first: int, count: int) -> Finishing:
        _, residual, scale_a, _ = self.tensors
        rows = slice(first, first + count)
        kept = None if residual is None else residual[rows]
        scales = scale_a if scale_a is None or scale_a.numel() == 1 else scale_a.flatten()[rows]
        return replace(self, tensors=self.tensors._replace(residual=kept, scale_a=scales))

    def __call__(self, z: Tensor) -> Tensor:
        """Return the epilogue of the product z, in the type of z."""
        given = EpilogueTensors(*[None if each is None else each.to(z.dtype) for each in self.tensors])
        return finished(z, given, self.epilogue.activation, self.epilogue.alpha, self.epilogue.beta)

    def noise(self, z: Tensor, noise: Tensor) -> Tensor:
        """Return a bound on the error of the result in fp32. noise: bound on the error of z."""
        sizes = self._of_sizes()
        size, scaled = sizes(z.abs()), replace(sizes, tensors=sizes.tensors._replace(bias=None, residual=None))
        before = scaled(noise) + ROUNDINGS * size
        if self.epilogue.activation == "none":
            return before
        if self.epilogue.columns_of_c == 1:
            return STEEPEST * before
        return STEEPEST * (before[..., 0::2] * size[..., 1::2] + before[..., 1::2] * size[..., 0::2])

    def _of_sizes(self) -> Finishing:
        """Return the epilogue with absolute values of tensors and factors, and without activation."""
        how = self.epilogue
        plain = replace(how, activation="none", alpha=abs(how.alpha), beta=abs(how.beta))
        return Finishing(plain, EpilogueTensors(*[None if each is None else each.abs() for each in self.tensors]))
