"""Writes docs/instructions.md: what the simulator knows of each instruction, from the descriptions that it runs by."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from blackwell_matmul.simulator.description import Description, Effect, Space, When
from blackwell_matmul.simulator.semantics import DESCRIPTIONS

PAGE = Path(__file__).with_name("instructions.md")
HEAD = """# Instructions

This table has the simulator's description of each tilus instruction. `python docs/instruction_table.py` writes it from
the descriptions that execute the instructions.

- **touches**: its accesses to memory, with the proxy. "later" means at some time before the operation is waited for.
- **signals**, **waits for**: its signals to an mbarrier, and its waits.
- **time**: the part of the SM that serves it, then the figure of `gpu_figures.TimeFigures` for the warp's issue cycles.
- **left out**: what the checks of the order leave out.

| instruction | touches | signals | waits for | time | left out | PTX ISA | in tilus |
|---|---|---|---|---|---|---|---|
"""


def page() -> str:
    return HEAD + "".join(f"{row}\n" for row in rows())


def rows() -> Iterator[str]:
    for name, (description, _) in sorted(DESCRIPTIONS.items(), key=lambda item: (item[1][0].name, item[0])):
        touched = ", ".join(dict.fromkeys(map(_touch, _memory(description))))
        told = ", ".join(f"{s.kind}{_later(s.when)}" for s in description.signals)
        awaited = ", ".join(wait.kind for wait in description.waits)
        time, left_out = str(description.time), description.approximation
        cells = (description.name, touched, told, awaited, time, left_out, description.section, f"`{name}`")
        yield f"| {' | '.join(cells)} |"


def _memory(description: Description) -> list[Effect]:
    return [effect for effect in description.effects if effect.space is not Space.REGISTER]


def _touch(effect: Effect) -> str:
    return f"{effect.access.value} {effect.space.value} ({effect.proxy.value}){_later(effect.when)}"


def _later(when: When) -> str:
    return " later" if when is When.COMPLETION else ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
