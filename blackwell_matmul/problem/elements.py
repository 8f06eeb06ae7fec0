"""Element types that a tensor or array may have for a kernel's parameter such as `~float16`.

A tensor may have the type itself. Signed and unsigned integers of one width are interchangeable. Types that numpy or
torch lacks (bfloat16, 8-bit floats) are passed as integers of the same width, types below 8 bits packed in bytes.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from blackwell_matmul.base.errors import InputError

_NAMES = {"tfloat32": "float32", "float8_e4m3": "float8_e4m3fn", "float8_e8m0": "float8_e8m0fnu"}
"""torch's and numpy's names of types, where tilus's differ."""

_BITS = re.compile(r"[a-z]+(\d+)")
_INTEGER = re.compile(r"u?int\d+")


def require_element(kernel: str, name: str, element: str, value: Any) -> None:
    """Raise InputError unless a parameter `~element` can point to the tensor or array.

    element: tilus's name of the type; "" accepts any type.
    """
    if not element or fits(element, value.dtype):
        return
    kind, library = ("an array", "numpy") if type(value).__module__.startswith("numpy") else ("a tensor", "torch")
    raise InputError(
        f"{name} of {kernel} is {kind} of {dtype_name(value.dtype)} and the kernel takes ~{element}: pass "
        f"{_offered(name, _scalar(element), library)}, or annotate {name} with void_p, which takes any."
    )


def require_taken_as(kernel: str, name: str, element: str, value: Any) -> None:
    """Raise InputError unless the tensor or array has the type for which a `void_p` parameter was compiled.

    element: tilus's name of that type; "" accepts any type.
    """
    if element and not fits(element, value.dtype):
        library = "numpy" if type(value).__module__.startswith("numpy") else "torch"
        expected = f"{library}.{_NAMES.get(_scalar(element), _scalar(element))}"
        raise InputError(
            f"{name} of {kernel} is {library}.{dtype_name(value.dtype)}; the kernel was compiled for {expected}."
        )


def dtype_name(dtype: Any) -> str:
    """Return the name of a torch or numpy type, such as `float16`."""
    return str(getattr(dtype, "name", dtype)).removeprefix("torch.")


@functools.cache
def fits(element: str, dtype: Any) -> bool:
    """Return True if a dtype of torch or numpy can hold tilus's type `element`."""
    element, given, nbytes = _scalar(element), dtype_name(dtype), dtype.itemsize
    if _NAMES.get(element, element) == given:
        return True
    bits = _bits(element)
    if bits < 8:
        return nbytes == 1
    alike = _INTEGER.fullmatch(given) is not None and nbytes * 8 == bits
    return alike and (_INTEGER.fullmatch(element) is not None or _is_stored_as_integers(element))


def _is_stored_as_integers(element: str) -> bool:
    return element in ("bfloat16", "bool") or element.startswith("float8")


def _scalar(element: str) -> str:
    """Return the scalar element type of a vector type such as float16x2."""
    return re.sub(r"x\d+$", "", element)


def _bits(element: str) -> int:
    found = _BITS.match(element)
    return int(found[1]) if found else 8


def _offered(name: str, element: str, library: str) -> str:
    """Return a clause that lists the types that would fit."""
    lacking = library == "numpy" and element != "bool" and _is_stored_as_integers(element)
    if lacking or _bits(element) < 8:
        return f"one of {library}.uint{max(8, _bits(element))} that holds the bits"
    wanted = f"{library}.{_NAMES.get(element, element)}"
    return f"one of {wanted}, such as {name}.{'astype' if library == 'numpy' else 'to'}({wanted}) of an input"
