"""Makes a Jupyter notebook of a page: its snippets are cells with their outputs, all else is text.

The page is the source, and what a diff shows; the notebook is written by refresh.py and holds the same words. A folded
solution stays one piece of text, since nothing folds across cells.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import nbformat
from nbformat import NotebookNode, v4
from refresh import Snippet, is_folded, snippets

_HEADING = re.compile(r"^(?=## )", re.M)
_COMMENT = re.compile(r"^<!-- (?:source|output)[^\n]* -->\n", re.M)
_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def name_of(page_name: str) -> str:
    return page_name.removesuffix(".md") + ".ipynb"


def text_of(page: str) -> str:
    """The notebook of a page, as its file holds it."""
    cells = list(_cells(page))
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"  # nbformat draws them at random
    notebook = v4.new_notebook(cells=cells, metadata=_METADATA)
    nbformat.validate(notebook)
    return nbformat.writes(notebook) + "\n"


def _cells(page: str) -> Iterator[NotebookNode]:
    end = 0
    for snippet in snippets(page):
        if not is_folded(page, snippet):
            yield from _texts(page[end : snippet.start])
            yield _code(snippet)
            end = snippet.after
    yield from _texts(page[end:])


def _texts(text: str) -> Iterator[NotebookNode]:
    """A cell for each section."""
    for part in _HEADING.split(_COMMENT.sub("", text)):
        if part.strip():
            yield v4.new_markdown_cell(part.strip())


def _code(snippet: Snippet) -> NotebookNode:
    outputs = [v4.new_output("stream", name="stdout", text=snippet.shown)] if snippet.shown else []
    return v4.new_code_cell(snippet.text.rstrip(), outputs=outputs)
