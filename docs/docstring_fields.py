"""An extension of griffe: what a docstring says of a parameter or a field (`name: …`) becomes an item of a list."""

from __future__ import annotations

import re
from typing import Any

import griffe

FIELD = re.compile(r"(?:^|(?:;|(?<=[.)]))\s)(?P<names>\w+(?:, \w+)*): ", re.MULTILINE)


def as_list(text: str, known: set[str]) -> str:
    """`text` with an item for each field that has a `known` name."""

    def item(match: re.Match[str]) -> str:
        names = match["names"].split(", ")
        return "\n\n- " + ", ".join(f"`{name}`" for name in names) + ": " if known.issuperset(names) else match[0]

    head, separator, rest = text.partition("\n\n")
    paragraphs = (FIELD.sub(item, " ".join(part.splitlines())) for part in rest.split("\n\n"))
    return head + separator + "\n\n".join(paragraphs)


class Fields(griffe.Extension):  # type: ignore[misc]
    """For every function and class that is loaded."""

    def on_function(self, *, func: Any, **_: Any) -> None:
        if func.docstring:
            func.docstring.value = as_list(func.docstring.value, {each.name for each in func.parameters})

    def on_class(self, *, cls: Any, **_: Any) -> None:
        if cls.docstring:
            cls.docstring.value = as_list(cls.docstring.value, set(cls.all_members))
