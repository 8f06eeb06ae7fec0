"""Sentences for scripts whose `__call__` has parameters that a kernel cannot have."""

from __future__ import annotations

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import shown
from blackwell_matmul.frontend.messages.phrases import plain_sentence
from blackwell_matmul.frontend.messages.raised import innermost


def no_kernel(script_cls: type, error: ValueError) -> InputError:
    """Return the refusal of a script whose `__call__` has parameters that a kernel cannot have."""
    parameter = (innermost(error, "extract_params", "param") or {}).get("param")
    text, work = (
        plain_sentence(str(error)).replace(". ", "; "),
        "int32, float32, pointers such as ~float16, and int work",
    )
    users = [each for each in script_cls.__mro__[:-1] if not each.__module__.startswith("tilus.")]
    if not any("__call__" in vars(each) for each in users):
        text = "the class has none; write def __call__(self, ...) with the statements of the kernel"
    elif "POSITIONAL_OR_KEYWORD" in text:
        text = "each of its parameters needs a name and a place; leave out * and /"
    elif "miss type" in text and parameter is not None:
        text = f"{parameter.name} has no annotation; {work}"
    elif "type annotation should" in text and parameter is not None:
        found = getattr(parameter.annotation, "__name__", shown(parameter.annotation))
        text = f"{parameter.name} is annotated with {found}; {work}"
    return InputError(f"{script_cls.__name__}.__call__ cannot be a kernel: {text}.")
