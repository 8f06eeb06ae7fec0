"""Hooks of mkdocs: a source file that a page links to becomes a page, and so do `PAGES` and the reference."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from posixpath import normpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import reference  # noqa: E402

PAGES = tuple(path.name for path in sorted((ROOT / "docs").glob("*.md")))
"""Pages beside this file; the site has them and their pictures under the same name."""

OVERVIEW = "overview.md"
"""What the site calls the README of the repository; that of the tutorials has its name."""

LINK = re.compile(r"(?<!!)\[(?P<text>[^\]\[]+)\]\((?P<target>[^)#:\s]+)(?P<place>#[\w-]+)?\)")


def _target(link: re.Match[str]) -> Path:
    """The path that a link of a tutorial leads to, from the root of the repository."""
    return Path(normpath(f"tutorials/{link['target']}"))


def _is_source(path: Path) -> bool:
    return path.suffix == ".py" and (ROOT / path).is_file()


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name in PAGES:
        files.append(File.generated(config, name, content=(ROOT / "docs" / name).read_text(encoding="utf-8")))
    files.append(File.generated(config, OVERVIEW, content=_overview()))
    for name, text in reference.pages().items():
        files.append(File.generated(config, name, content=text))
    for path in (*(ROOT / "docs").glob("*.svg"), ROOT / "docs/theme/worker.js"):
        files.append(File.generated(config, path.name, content=path.read_text(encoding="utf-8")))
    for path in sorted(_linked_sources(files)):
        text = (ROOT / path).read_text(encoding="utf-8")
        page = f"---\nhide: [toc]\n---\n\n# {path.name}\n\n`{path}`\n\n```python\n{text}```\n"
        files.append(File.generated(config, f"source/{path}.md", content=page))
    return files


def _overview() -> str:
    """With links as from the folder of the tutorials, which the pages lie in."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return LINK.sub(r"[\g<text>](../\g<target>\g<place>)", re.sub(r"(!\[[^\]]*\]\()(?:docs|tutorials)/", r"\1", text))


def _linked_sources(files: Files) -> set[Path]:
    targets = {_target(link) for file in files.documentation_pages() for link in LINK.finditer(file.content_string)}
    return {path for path in targets if _is_source(path)}


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to source files lead to their pages; links to other things outside of the tutorials become plain text."""
    if page.file.src_uri.startswith("source/"):
        return markdown
    up = "../" if page.file.src_uri.startswith("reference/") else ""

    def on_the_site(link: re.Match[str]) -> str:
        path = _target(link)
        if _is_source(path):
            return f"[{link['text']}]({up}source/{path}.md)"
        if path.parent == Path("docs") and path.name in PAGES:
            return f"[{link['text']}]({path.name}{link['place'] or ''})"
        if path == Path("README.md"):
            return f"[{link['text']}]({up}{OVERVIEW}{link['place'] or ''})"
        if page.file.src_uri in (*PAGES, OVERVIEW) and path.suffix == ".md" and path.parent == Path("tutorials"):
            return f"[{link['text']}]({path.name}{link['place'] or ''})"  # all pages lie beside each other
        return link[0] if path.is_relative_to("tutorials") else f"`{link['text']}`"

    return LINK.sub(on_the_site, markdown)
