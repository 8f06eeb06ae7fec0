"""Options of a product's form (layout, epilogue, batches), for all commands that take a kernel."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter
from typing import Annotated, Any

import typer

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import shown
from blackwell_matmul.cli import options
from blackwell_matmul.problem.form import LAYOUTS, OUTPUT_DTYPES, Epilogue, Form
from blackwell_matmul.problem.problem import positive

FORMS = "What blackwell and hopper compute"


def _option(metavar: str, text: str, default: str) -> Any:
    return Annotated[str | None, typer.Option(metavar=metavar, help=text, show_default=default, rich_help_panel=FORMS)]


FORM_OPTIONS: Mapping[str, Any] = {
    "layout": _option(
        "|".join(LAYOUTS), "As cuBLAS: t is A contiguous along k, n along m; then n is B along k, t along n.", "tn"
    ),
    "epilogue": _option(
        "WORD,...", "bias, residual, scaled, scaled_rows or scaled_blocks, and an activation, such as gelu.", "none"
    ),
    "alpha": _option("NUMBER", "What the product is multiplied by.", "1"),
    "beta": _option("NUMBER", "What the residual is multiplied by.", "1"),
    "out": _option("fp16|bf16|fp32", "Element type of C.", "as A and B, or bf16 where they have 8 bits"),
    "batch": _option("INTEGER", "How many products.", "1"),
}


@dataclass(frozen=True)
class FormWords:
    """Texts of the form options on a command line; None for an omitted option."""

    layout: str | None = None
    epilogue: str | None = None
    alpha: str | None = None
    beta: str | None = None
    out: str | None = None
    batch: str | None = None

    @property
    def words(self) -> list[str]:
        """Return the given options as words of a command line."""
        return [word for name, given in vars(self).items() if given is not None for word in (f"--{name}", given)]

    @property
    def form(self) -> Form:
        a_major, b_major = LAYOUTS[_known("--layout", self.layout or "tn", tuple(LAYOUTS))]
        out = "" if self.out is None else _known("--out", self.out, OUTPUT_DTYPES[1:])
        epilogue = Epilogue.parse(self.epilogue or "", _number("--alpha", self.alpha), _number("--beta", self.beta))
        if self.beta is not None and not epilogue.residual:
            raise InputError(
                f"--beta is {shown(self.beta)}, for a residual, and there is none; add --epilogue residual."
            )
        return Form(a_major, b_major, out=out, epilogue=epilogue)

    @property
    def batches(self) -> int:
        return 1 if self.batch is None else positive("--batch", options.integer("--batch", self.batch))


NO_FORM = FormWords()


def _known(name: str, word: str, offered: tuple[str, ...]) -> str:
    if word not in offered:
        raise InputError(f"{name} is {shown(word)}; it must be one of {', '.join(offered)}.")
    return word


def _number(name: str, text: str | None) -> float:
    found = options.decimal("1" if text is None else text)
    if found is None:
        raise InputError(f"{name} is {shown(text)}; it must be a number.")
    return found


def takes_form(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with `FORM_OPTIONS`, which it gets as its argument `form`.

    If the command has its own --out, the option of C's type is --out-dtype.
    """
    signature = inspect.signature(command, eval_str=True)  # typer reads the types from `__signature__`
    own = [each.replace(kind=Parameter.KEYWORD_ONLY) for name, each in signature.parameters.items() if name != "form"]
    names = {name: f"{name}_dtype" if name in signature.parameters else name for name in FORM_OPTIONS}

    @functools.wraps(command)
    def called(**given: Any) -> None:
        form = FormWords(**{name: given.pop(said) for name, said in names.items()})
        command(**given, form=form)

    added = [
        Parameter(said, Parameter.KEYWORD_ONLY, default=None, annotation=FORM_OPTIONS[name])
        for name, said in names.items()
    ]
    called.__signature__ = signature.replace(parameters=own + added)  # type: ignore[attr-defined]
    kept = {name: value for name, value in command.__annotations__.items() if name != "form"}
    called.__annotations__ = {**kept, **{said: FORM_OPTIONS[name] for name, said in names.items()}}
    return called
