"""What torch.compile makes of the matmuls of real models, and which of its switches for TMA help on this GPU.

A trial is one configuration (`configurations`) of one workload (`workloads`), compiled from nothing in a process of its
own and timed against eager there (`measuring`). `templates` reads from inductor's code which kernel it chose,
`switches` finds out which variables the installed versions read, `recommendation` says what to switch on.
"""

from __future__ import annotations

from collections.abc import Iterator

from blackwell_matmul_studies.torch_compile.configurations import (
    ALONE_CONFIGURATIONS,
    QUICK_CONFIGURATIONS,
    Configuration,
    installed,
)
from blackwell_matmul_studies.torch_compile.workloads import ALL_WORKLOADS, FEW_WORKLOADS, LONELY, Workload
from blackwell_matmul_studies.trial import Trial

SWITCHES_TRIAL = "switches"
BETWEEN = "  "
"""Configuration and workload in the name of a trial."""

AUTOTUNE_PATIENCE = 5.0
"""Inductor tries dozens of kernels for each matmul in silence."""


def trials(quick: bool) -> tuple[Trial, ...]:
    """Workload by workload, each in all configurations: a run that is broken off has whole workloads to compare."""
    return tuple(_trials(quick))


def _trials(quick: bool) -> Iterator[Trial]:
    yield Trial(SWITCHES_TRIAL, f"{__name__}.switches:looked_up")
    chosen = installed(QUICK_CONFIGURATIONS if quick else ())
    for workload in FEW_WORKLOADS if quick else ALL_WORKLOADS:
        yield from (_trial(configuration, workload) for configuration in chosen)
    if not quick:
        yield from (
            _trial(configuration, workload) for workload in LONELY for configuration in installed(ALONE_CONFIGURATIONS)
        )


def _trial(configuration: Configuration, workload: Workload) -> Trial:
    arguments = {
        "configuration": configuration.name,
        "options": dict(configuration.options),
        "kind": workload.kind,
        "sizes": dict(workload.sizes),
        "dtype": workload.dtype,
    }
    name = f"{configuration.name}{BETWEEN}{workload.name}"
    patience = AUTOTUNE_PATIENCE if configuration.autotunes else 2.0
    return Trial(name, f"{__name__}.measuring:measured", arguments, patience=patience)
