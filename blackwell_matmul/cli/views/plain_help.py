"""Changes of typer's `--help`: no type for flags and arguments, and defaults as plain text."""

from __future__ import annotations

from typing import Any

from typer.core import TyperArgument, TyperCommand, TyperGroup


class _PlainHelp:
    """Mixin that changes the help of a command's parameters, including those that typer adds."""

    def get_params(self, ctx: Any) -> Any:
        params = super().get_params(ctx)  # type: ignore[misc]
        for each in params:
            _tell_plainly(each)
        return params


class Command(_PlainHelp, TyperCommand):
    """A typer command with the changed help."""


class Group(_PlainHelp, TyperGroup):
    """A typer group with the changed help."""


def _tell_plainly(parameter: Any) -> None:
    """Change the help of a parameter. typer puts a textual default into parentheses, and `<str>` or `<bool>` next to an
    argument or a flag."""
    if isinstance(parameter.show_default, str):
        parameter.help = f"{parameter.help} [default: {parameter.show_default}]"
        parameter.show_default = False
    if getattr(parameter, "is_flag", False):
        parameter.metavar = ""
    if isinstance(parameter, TyperArgument):
        parameter.display_type_rich = lambda ctx: None  # type: ignore[method-assign]
