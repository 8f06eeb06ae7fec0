"""`--help` in plain words: no type for flags or obvious values, and plain defaults."""

from __future__ import annotations

from typing import Any

from typer.core import TyperArgument, TyperCommand, TyperGroup


class _PlainHelp:
    """Mixin for a command or group with plain help."""

    params: list[Any]

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        for each in self.params:
            _tell_plainly(each)

    def get_help_option(self, ctx: Any) -> Any:
        option = super().get_help_option(ctx)  # type: ignore[misc]
        if option is not None:
            option.metavar = ""  # it takes no value
        return option


class Command(_PlainHelp, TyperCommand):
    """A command with plain help."""


class Group(_PlainHelp, TyperGroup):
    """A group of commands with plain help."""


def _tell_plainly(parameter: Any) -> None:
    """Remove typer's parentheses around worded defaults, and `<str>` beside arguments."""
    if isinstance(parameter.show_default, str):
        parameter.help = f"{parameter.help} [default: {parameter.show_default}]"
        parameter.show_default = False
    if isinstance(parameter, TyperArgument):
        parameter.display_type_rich = lambda ctx: None  # type: ignore[method-assign]
