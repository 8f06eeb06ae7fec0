"""`--help` in plain words: no type for flags or obvious values, and plain defaults."""

from __future__ import annotations

from typing import Any

from typer.core import TyperArgument, TyperCommand, TyperGroup


class _PlainHelp:
    """Plain help for the parameters of a command or group, including the parameters that typer adds."""

    def get_params(self, ctx: Any) -> Any:
        params = super().get_params(ctx)  # type: ignore[misc]
        for each in params:
            _tell_plainly(each)
        return params


class Command(_PlainHelp, TyperCommand):
    """A command with plain help."""


class Group(_PlainHelp, TyperGroup):
    """A group of commands with plain help."""


def _tell_plainly(parameter: Any) -> None:
    """Show defaults and types in plain words. typer puts a textual default into parentheses, and `<str>` or `<bool>`
    next to an argument or a flag."""
    if isinstance(parameter.show_default, str):
        parameter.help = f"{parameter.help} [default: {parameter.show_default}]"
        parameter.show_default = False
    if getattr(parameter, "is_flag", False):
        parameter.metavar = ""
    if isinstance(parameter, TyperArgument):
        parameter.display_type_rich = lambda ctx: None  # type: ignore[method-assign]
