"""Copied as sitecustomize.py for an emulated Python program; imports nothing of this project.

`cuda.bindings.runtime` contains NVIDIA's runtime, which accepts only NVIDIA's driver. The modules of `cuda.bindings`
find each other's C functions by capsules in `__pyx_capi__` (Cython, "Sharing declarations between modules"). This
module replaces the addresses in the capsules before the first module reads them. CuTe DSL finds the runtime's functions
in our libraries first. After the import of a torch without CUDA, `for_torch` runs.
"""

import glob
import importlib
import importlib.machinery
import importlib.util
import os
import sys

HOLDERS = ("cuda.bindings._internal.runtime", "cuda.bindings._bindings.cyruntime")
"""Modules that hold the runtime's functions, in new and in old versions of cuda.bindings."""


HERE = os.path.dirname(os.path.abspath(__file__))


class Finder:
    """A finder for `sys.meta_path`: replaces the runtime before `cuda.bindings.cyruntime` is read; adapts torch."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> object:
        if name == "cuda.bindings.cyruntime":
            replace_runtime()
        if name == "torch" and path is None:
            return followed(importlib.machinery.PathFinder.find_spec(name))
        return None


def followed(spec):  # type: ignore[no-untyped-def]
    """Return torch's spec, changed so that the import of a torch without CUDA ends by running `for_torch`."""
    if spec is None or spec.loader is None:
        return spec
    execute = spec.loader.exec_module

    def execute_both(module):  # type: ignore[no-untyped-def]
        execute(module)
        if module.version.cuda is None:
            importlib.import_module("for_torch").adapt()

    spec.loader.exec_module = execute_both
    return spec


def replace_runtime() -> None:
    for each in HOLDERS:
        try:
            replace(importlib.import_module(each).__pyx_capi__)
        except ImportError:
            continue


def replace(capsules: dict[str, object]) -> None:
    import ctypes

    library = ctypes.CDLL("libcudart.so.13")
    put = ctypes.pythonapi.PyCapsule_SetPointer
    put.argtypes = [ctypes.py_object, ctypes.c_void_p]
    for name, capsule in capsules.items():
        function = getattr(library, name.lstrip("_"), None)
        if function is not None:
            put(capsule, ctypes.cast(function, ctypes.c_void_p))


def offer_to_cute_dsl() -> None:
    """Name our libraries in CUTE_DSL_LIBS before CuTe DSL's own, which then serves functions without launches."""
    own = [
        found
        for each in sys.path
        for found in glob.glob(os.path.join(each, "nvidia_cutlass_dsl", "**", "libcute_dsl_runtime.so"), recursive=True)
        if "stubs" not in found
    ]
    ours = [os.path.join(HERE, name) for name in ("libcudart.so.13", "libcuda.so.1")]
    os.environ["CUTE_DSL_LIBS"] = os.pathsep.join([*ours, *own[:1]])


def continued() -> None:
    """Execute the sitecustomize of the machine, if any, which this file hides."""
    found = importlib.machinery.PathFinder.find_spec("sitecustomize", [each for each in sys.path if each != HERE])
    if found is not None and found.loader is not None:
        found.loader.exec_module(importlib.util.module_from_spec(found))


if __name__ == "sitecustomize":
    sys.meta_path.insert(0, Finder)  # type: ignore[arg-type]
    offer_to_cute_dsl()
    continued()
