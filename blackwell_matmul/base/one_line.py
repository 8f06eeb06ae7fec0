"""Display of results: one line of text; in a notebook also a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape


class OneLine:
    """Base class of results. `str` is the full text; `repr` is one line."""

    def _line(self) -> str:
        return str(self)

    def _facts(self) -> Mapping[str, object]:
        raise NotImplementedError

    def _rows(self) -> Iterable[Mapping[str, object]]:
        """Return the rows of the notebook's table; all rows have the same keys."""
        return ()

    def __repr__(self) -> str:
        return self._line()

    def _repr_html_(self) -> str:
        facts = "".join(_row("td", name, value) for name, value in self._facts().items() if value not in (None, ""))
        line = f'<p style="white-space:pre-wrap">{escape(self._line())}</p>'
        return f"{line}<table>{facts}</table>{_table(list(self._rows()))}"


def spelled_out(values: Mapping[str, object]) -> str:
    """Return a mapping as text, such as `block_m=128,stages=3`."""
    return ",".join(f"{name}={value}" for name, value in values.items())


def _table(rows: list[Mapping[str, object]]) -> str:
    if not rows:
        return ""
    return f"<table>{_row('th', *rows[0])}{''.join(_row('td', *row.values()) for row in rows)}</table>"


def _row(tag: str, *cells: object) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(str(cell))}</{tag}>' for cell in cells)}</tr>"
