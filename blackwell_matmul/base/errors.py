"""Errors for users. Each message is one sentence: the fault, its place, the numbers, and a remedy."""

from __future__ import annotations

from blackwell_matmul.base.validation import printable


class BlackwellMatmulError(Exception):
    """Base of every error that this package raises on purpose; its message is safe to show."""

    def __str__(self) -> str:
        return printable(super().__str__())


class InputError(BlackwellMatmulError, ValueError):
    """An argument, an option or a schedule breaks a rule that the message names."""


class CompileError(BlackwellMatmulError):
    """tilus rejects the script for this target; the message has its reason and the source line."""


class UnsupportedError(BlackwellMatmulError, NotImplementedError):
    """An instruction, a type or a device that this version does not support; nothing is skipped silently."""


class SimulationError(BlackwellMatmulError):
    """The simulated program cannot continue (deadlock, illegal memory access); the message has the line."""


class DriverError(BlackwellMatmulError):
    """The CUDA driver refused a call; the message has the call, its purpose and the driver's reason."""


class EmulationError(BlackwellMatmulError):
    """The emulated code cannot continue (undefined behavior, deadlock, endless loop); the message has the PTX line."""
