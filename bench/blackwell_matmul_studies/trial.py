"""`Trial`: one measurement of a study, as plain data, so that a child process can make it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Trial:
    """name: its row's, one in the study. do: "module:function"; the function takes `step`, to be told what it is about
    to do, and the arguments, which are JSON, and returns the row's result, which is JSON too. environment: variables
    that its process starts with, besides this one's. patience: how many times the usual limit it may be silent, for a
    compiler that says nothing while it works."""

    name: str
    do: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    patience: float = 1.0

    @property
    def module(self) -> str:
        return self.do.partition(":")[0]

    @property
    def task(self) -> dict[str, Any]:
        return {"do": self.do, **self.arguments}
