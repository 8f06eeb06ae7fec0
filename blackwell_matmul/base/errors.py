"""The errors a user can meet. Each message is one sentence: what, where, the numbers, what would work."""

from __future__ import annotations

from blackwell_matmul.base.validation import printable


class BlackwellMatmulError(Exception):
    """Base of every error this package raises on purpose. Its sentence is safe to show, whatever names are in it."""

    def __str__(self) -> str:
        return printable(super().__str__())


class InputError(BlackwellMatmulError, ValueError):
    """An argument, an option or a schedule breaks a rule that the message names."""


class CompileError(BlackwellMatmulError):
    """tilus refuses the script for this target; the message carries its reason and the source line."""


class UnsupportedError(BlackwellMatmulError, NotImplementedError):
    """An instruction, a type or a device that this version does not serve; nothing is skipped silently."""


class SimulationError(BlackwellMatmulError):
    """The simulated program cannot go on (deadlock, access outside of memory); the message says where."""


class DriverError(BlackwellMatmulError):
    """The CUDA driver refused a call; the message has the call, what was attempted, and the driver's own reason."""


class EmulationError(BlackwellMatmulError):
    """The emulated code cannot go on: it has no meaning, waits for ever or does not end; the message has its line."""
