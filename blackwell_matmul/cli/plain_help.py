"""`--help` in plain words: no type where there is no value to give or it says nothing, a default as it is."""

from __future__ import annotations

from typing import Any

from typer.core import TyperArgument, TyperCommand, TyperGroup


class _PlainHelp:
    """Of a command or a group of them."""

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
    """A command with such a help."""


class Group(_PlainHelp, TyperGroup):
    """The commands, with such a help."""


def _tell_plainly(parameter: Any) -> None:
    """typer puts a default in words into parentheses, and `<str>` beside the name of an argument."""
    if isinstance(parameter.show_default, str):
        parameter.help = f"{parameter.help} [default: {parameter.show_default}]"
        parameter.show_default = False
    if isinstance(parameter, TyperArgument):
        parameter.display_type_rich = lambda ctx: None  # type: ignore[method-assign]
