"""The configurations: options of `torch.compile`, only those that the installed torch has.

The persistent TMA template takes part only under max_autotune, and its TMA store only beside it; tensor descriptors in
generated kernels need inputs that are assumed aligned (torch/_inductor/config.py, "TMA API Restrictions").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

Options = Mapping[str, bool]

_AUTOTUNE: Options = {"max_autotune": True, "coordinate_descent_tuning": True}
_LOADS: Options = {"triton.enable_persistent_tma_matmul": True}
_STORES: Options = {"triton.enable_template_tma_store": True}
_DESCRIPTORS: Options = {"triton.use_tensor_descriptor": True, "assume_aligned_inputs": True}
_GRAPHS: Options = {"triton.cudagraphs": True}
_CPP: Options = {"cpp_wrapper": True}
_TMA: Options = {**_LOADS, **_STORES, **_DESCRIPTORS}


@dataclass(frozen=True)
class Configuration:
    """options: as torch.compile takes them. torch.compile's mode "max-autotune" is `CUDA graphs` here, and its
    "max-autotune-no-cudagraphs" is `max-autotune`."""

    name: str
    options: Options = field(default_factory=dict)

    @property
    def autotunes(self) -> bool:
        return self.options.get("max_autotune", False)


_CONFIGURATIONS = (
    Configuration("default"),
    Configuration("max-autotune", _AUTOTUNE),
    Configuration("TMA loads", {**_AUTOTUNE, **_LOADS}),
    Configuration("TMA loads+stores", {**_AUTOTUNE, **_LOADS, **_STORES}),
    Configuration("descriptors", {**_AUTOTUNE, **_DESCRIPTORS}),
    Configuration("all TMA", {**_AUTOTUNE, **_TMA}),
    Configuration("C++ wrapper", {**_AUTOTUNE, **_CPP}),
    Configuration("CUDA graphs", {**_AUTOTUNE, **_GRAPHS}),
    Configuration("all TMA, C++", {**_AUTOTUNE, **_TMA, **_CPP}),
    Configuration("all TMA, graphs", {**_AUTOTUNE, **_TMA, **_GRAPHS}),
)
"""All but `default` autotune: no other switch reaches a matmul without."""

QUICK_CONFIGURATIONS = ("default", "max-autotune", "TMA loads", "all TMA")
ALONE_CONFIGURATIONS = ("max-autotune",)

VARIABLES: Mapping[str, str] = MappingProxyType(
    {
        "max_autotune": "TORCHINDUCTOR_MAX_AUTOTUNE",
        "coordinate_descent_tuning": "TORCHINDUCTOR_COORDINATE_DESCENT_TUNING",
        "triton.enable_persistent_tma_matmul": "ENABLE_PERSISTENT_TMA_MATMUL",
        "triton.enable_template_tma_store": "ENABLE_TEMPLATE_TMA_STORE",
        "triton.cudagraphs": "TORCHINDUCTOR_CUDAGRAPHS",
        "cpp_wrapper": "TORCHINDUCTOR_CPP_WRAPPER",
    }
)
"""The environment variable that sets an option; the options that are not here have none."""

LEFT_OUT = (
    "CUDA graphs with the C++ wrapper: torch turns CUDA graphs off under it.",
    "the CUTLASS backend: it takes the sources of CUTLASS, which torch does not bring.",
    "int8 and FlexAttention in other configurations than max-autotune: one row each is enough to name their kernel.",
)


def installed(names: Sequence[str] = ()) -> tuple[Configuration, ...]:
    """Those of these names, or all; none with an option that the installed torch lacks."""
    chosen = [each for each in _CONFIGURATIONS if not names or each.name in names]
    return tuple(each for each in chosen if not any(map(lacking, each.options)))


def unknown() -> dict[str, list[str]]:
    """The configurations that are left out, each with the options that the installed torch lacks."""
    lacked = {each.name: [option for option in each.options if lacking(option)] for each in _CONFIGURATIONS}
    return {name: options for name, options in lacked.items() if options}


def lacking(option: str) -> bool:
    """Whether the installed torch has no such option. It would refuse the name."""
    import torch._inductor.config as config

    holder: object = config
    for part in option.split("."):
        if not hasattr(holder, part):
            return True
        holder = getattr(holder, part)
    return False
