"""Compile the kernels of Triton's own tests of its sanitizer, faulty and right ones: NAME.ptx and NAME.json each.

    curl -O https://raw.githubusercontent.com/triton-lang/triton/main/python/test/gluon/test_consan.py
    triton_venv/bin/python bench/foreign/consan.py test_consan.py build/consan 90
    triton_venv/bin/python bench/foreign/consan.py test_consan.py build/consan 100
    python bench/foreign/check.py build/consan --out bench/results/order_consan.json

The tests launch on a GPU. Here torch and pytest are stand-ins, and a launch compiles its kernel, not instrumented, for
each combination of parameters. A record says if the test expects a fault. No GPU is needed, and no torch.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "int32": 4, "int64": 8, "bool": 1, "uint8": 1, "int8": 1}


class Skipped(Exception):
    """A test that does not run for this target."""


class StandInType:
    def __init__(self, name: str, itemsize: int) -> None:
        self.name, self.itemsize = name, itemsize

    def __repr__(self) -> str:
        return f"torch.{self.name}"


class StandIn:
    """A tensor without contents."""

    device = "cuda"

    def __init__(self, shape: Any, dtype: Any) -> None:
        self.shape, self.dtype, self.ndim = (
            tuple(int(getattr(each, "value", each)) for each in shape),
            dtype,
            len(shape),
        )

    def stride(self, axis: int | None = None) -> Any:
        strides = [1]
        for extent in reversed(self.shape[1:]):
            strides.insert(0, strides[0] * extent)
        return strides if axis is None else strides[axis]

    def data_ptr(self) -> int:
        return 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **how: self


def stand_in_torch(capability: int) -> ModuleType:
    torch: Any = ModuleType("torch")
    for name, nbytes in BYTES.items():
        setattr(torch, name, StandInType(name, nbytes))

    def made(*shape: Any, dtype: Any = torch.float32, **how: Any) -> StandIn:
        return StandIn(shape[0] if shape and isinstance(shape[0], (tuple, list)) else shape, dtype)

    torch.Tensor = StandIn
    for name in ("randn", "empty", "zeros", "ones", "rand"):
        setattr(torch, name, made)
    torch.arange = lambda count, dtype=torch.int32, **how: StandIn((count,), dtype)
    torch.full = lambda shape, value, dtype=torch.float32, **how: StandIn(shape, dtype)
    torch.empty_like = torch.full_like = lambda like, *args, **how: StandIn(like.shape, like.dtype)
    torch.cuda = SimpleNamespace(
        get_device_capability=lambda *args: (capability, 0), synchronize=lambda: None, is_available=lambda: True
    )
    torch.testing = SimpleNamespace(assert_close=lambda *args, **how: None)
    torch.isnan = lambda tensor: SimpleNamespace(any=lambda: True, all=lambda: True)
    return torch


def stand_in_pytest() -> ModuleType:
    """Parameters and skips, kept on the functions."""
    pytest: Any = ModuleType("pytest")

    def skip(*args: Any, **how: Any) -> None:
        raise Skipped

    def parametrize(names: str, values: Any, **how: Any) -> Callable[[Any], Any]:
        def kept(function: Any) -> Any:
            function.axes = [*getattr(function, "axes", []), (names, list(values))]
            return function

        return kept

    def skipif(condition: bool, **how: Any) -> Callable[[Any], Any]:
        def kept(function: Any) -> Any:
            function.skipped = getattr(function, "skipped", False) or condition
            return function

        return kept

    pytest.skip, pytest.fixture = skip, lambda *args, **how: args[0] if args else lambda function: function
    pytest.param = lambda *args, **how: args[0] if len(args) == 1 else args
    pytest.mark = SimpleNamespace(parametrize=parametrize, skipif=skipif, xfail=lambda *args, **how: lambda f: f)
    return pytest


def loaded(path: Path, target: int) -> ModuleType:
    """The module of tests, with stand-ins."""
    testing: Any = ModuleType("triton._internal_testing")
    testing.is_cuda = lambda: True
    testing.run_in_process = lambda *args, **how: SimpleNamespace(exc="failed", driver_stderr_output="")
    import triton  # noqa: F401

    sys.modules |= {"torch": stand_in_torch(target // 10), "pytest": stand_in_pytest(), testing.__name__: testing}
    spec = importlib.util.spec_from_file_location("test_consan", path)
    assert spec is not None and spec.loader is not None
    module = sys.modules["test_consan"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def variants(test: Any) -> Iterator[dict[str, Any]]:
    """The parameters of a test, for one CTA and for two where it has them."""
    axes = [
        [dict(zip(_names(names), _values(names, each))) for each in values]
        for names, values in getattr(test, "axes", [])
    ]
    if "num_ctas" in test.__code__.co_varnames[: test.__code__.co_argcount]:
        axes.append([{"num_ctas": 1}, {"num_ctas": 2}])
    for parts in itertools.product(*axes):
        yield {key: value for part in parts for key, value in part.items()}


def _names(names: str) -> list[str]:
    return [each.strip() for each in names.split(",")]


def _values(names: str, given: Any) -> tuple[Any, ...]:
    return tuple(given) if "," in names else (given,)


def expects_fault(module: ModuleType, test: Any, given: dict[str, Any]) -> bool:
    """Whether the test looks at a failure of the process that it starts."""
    looked: list[Any] = []
    vars(module)["assert_expected_cuda_failure"] = looked.append
    try:
        test(**given, run_wrapper=True)
    except (AssertionError, AttributeError):
        pass
    return bool(looked)


def compiling(folder: Path, target: int, name: str, faulty: bool) -> Callable[..., None]:
    """What takes the place of a launch."""
    from case import TRITON_TYPES, Case, Constant, Descriptor, Tensor, compiled

    TRITON_TYPES["bool"] = "i1"

    def run(kernel: Any, *args: Any, grid: Any, warmup: bool = False, **how: Any) -> None:
        bound = {each.name: each.default for each in kernel.params} | dict(zip(kernel.arg_names, args))
        bound |= {key: value for key, value in how.items() if key in bound}
        tensors, arguments = {}, {}
        for each in kernel.params:
            value = bound[each.name]
            arguments[each.name] = value
            if each.is_constexpr or isinstance(value, bool):
                arguments[each.name] = Constant(value)
            elif isinstance(value, StandIn) or hasattr(value, "block_shape"):
                base = value if isinstance(value, StandIn) else value.base
                tensors[each.name] = Tensor(base.shape, base.dtype.name, {"kind": "ones"})
                arguments[each.name] = each.name
                if base is not value:
                    arguments[each.name] = Descriptor(each.name, tuple(value.block_shape), value.layout)
        options = {key: how[key] for key in ("num_warps", "num_ctas", "num_stages", "maxnreg") if key in how}
        case = Case(name, "consan", kernel, tuple(grid), tensors, arguments, ("none", {}), options=options, gluon=True)
        ptx, record = compiled(case, target)
        (folder / f"{name}.ptx").write_text(ptx)
        (folder / f"{name}.json").write_text(json.dumps(record | {"faulty": faulty}, default=str))

    return run


def main() -> None:
    path, folder, target = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    only = sys.argv[4] if len(sys.argv) > 4 else ""
    folder.mkdir(parents=True, exist_ok=True)
    sys.path.insert(0, str(Path(__file__).parent))
    module = loaded(path, target)
    from triton.experimental.gluon._runtime import GluonJITFunction

    environment = SimpleNamespace(setenv=lambda *args: None, delenv=lambda *args, **how: None)
    for name, test in list(vars(module).items()):
        if not name.startswith("test_") or getattr(test, "skipped", False) or only not in name:
            continue
        for given in variants(test):
            wanted = test.__code__.co_varnames[: test.__code__.co_argcount]
            fixed = {key: value for key, value in (("device", "cuda"), ("monkeypatch", environment)) if key in wanted}
            label = "_".join([name, str(target), *(str(each) for each in given.values())]).replace(" ", "")
            try:
                faulty = expects_fault(module, test, given | fixed)
                GluonJITFunction.run = compiling(folder, target, label.replace("/", "")[:120], faulty)
                test(**given, **fixed, run_wrapper=False)
            except Skipped:
                pass
            except Exception as error:
                print(f"{label}: {type(error).__name__}: {str(error)[-200:]}", flush=True)


if __name__ == "__main__":
    main()
