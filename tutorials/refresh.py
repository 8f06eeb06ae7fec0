"""Refreshes what is generated in the tutorials: pieces of kernels, printed outputs, pictures.

python tutorials/refresh.py           rewrites the pages, the notebooks and the pictures
python tutorials/refresh.py --check   changes nothing; exit code 1 when something is out of date

In a page, a comment `<!-- source: FILE from "a" to "b" -->` stands before a Python block that holds the lines of FILE
from the one that starts with a to the first one after it that starts with b. Every other Python block is run, all
blocks of a page in one namespace, in order; `<!-- output -->` stands before the text block that shows what it prints,
`<!-- output without a GPU -->` before one that a machine with a GPU leaves as it is.
A comment `<!-- predicted: v2 -->` stands before the paragraph that says where a rung stands on a B200 (cycles.py);
hopper.py has marks of its own, also for what a rung changes of the one below (`<!-- changed: v7 -->`).
A console block holds one `$ blackwell-matmul` command and what it prints on a terminal, beside files of examples/.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PAGES = ("v0.md", "v1.md", "v2.md", "v3.md", "v4.md", "v5.md", "v6.md", "v7.md")
LESSONS = ("00-tma.md",)
"""Pages that are notebooks as well: notebook.py makes each of its page."""

GUIDES = (
    "01-block-scaling.md",
    "hopper.md",
    "block_scales.md",
    "geforce.md",
    "../docs/first_kernel.md",
    "../docs/register_layouts.md",
)
"""Pages in another form; hopper.py fills in what the first one has of results and of differences."""

WIDTH = 110

_SOURCE = re.compile(r'^<!-- source: (?P<file>\S+) from "(?P<first>[^\n]*?)" to "(?P<last>[^\n]*?)" -->\n', re.M)
_BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```\n", re.M | re.S)
_COMMAND = re.compile(r"^```console\n\$ blackwell-matmul (?P<arguments>[^\n]*)\n(?P<text>.*?)^```\n", re.M | re.S)
_PLACE = re.compile(r"(<!-- predicted: (?P<rung>\w+) -->\n)(?:[^\n]+\n)*")
_EXCERPT = re.compile(r"[ >]+\d+ \| ")
"""How a report shows a line of source; like the pieces of kernels it is not wrapped."""
_OUTPUT = re.compile(r"\n*<!-- output(?P<cpu> without a GPU)? -->\n```text\n(?P<text>.*?)^```\n", re.M | re.S)


@dataclass(frozen=True)
class Piece:
    """Lines first to last (counted from 1, both inside) of a file, and their text without the common indentation."""

    file: str
    first: int
    last: int
    text: str


def piece_of(file: str, first: str, last: str) -> Piece:
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    starts = [i for i, line in enumerate(lines) if line.strip().startswith(first)]
    if len(starts) != 1:
        raise ValueError(f'{len(starts)} lines of {file} start with "{first}"; the anchor must name one')
    end = next((i for i in range(starts[0], len(lines)) if lines[i].strip().startswith(last)), None)
    if end is None:
        raise ValueError(f'no line of {file} from line {starts[0] + 1} on starts with "{last}"')
    text = textwrap.dedent("\n".join(lines[starts[0] : end + 1])) + "\n"
    return Piece(file, starts[0] + 1, end + 1, text)


def pieces(page: str) -> list[Piece]:
    """The pieces of source files that a page shows, as they are in the files now."""
    return [piece_of(m["file"], m["first"], m["last"]) for m in _SOURCE.finditer(page)]


def expand(page: str) -> str:
    """The page with every piece as it is in its file now."""

    def fresh(match: re.Match[str]) -> str:
        return f"{match[1]}```python\n{piece_of(match['file'], match['first'], match['last']).text}```\n"

    pattern = re.compile(r"(" + _SOURCE.pattern + r")(?:```python\n.*?^```\n)?", re.M | re.S)
    return pattern.sub(fresh, page)


@dataclass(frozen=True)
class Snippet:
    """A Python block that is run. start, end: where it is in the page; shown: the output under it, or None.

    after: where that ends. cpu: the output is that of a machine without a GPU.
    """

    text: str
    start: int
    end: int
    shown: str | None
    after: int
    cpu: bool = False

    def says_the_same(self, printed: str) -> bool:
        """Whether the page shows what was printed here, as far as this machine can tell."""
        return (self.cpu and _has_gpu()) or (self.shown or "").split() == printed.split()


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def snippets(page: str) -> list[Snippet]:
    found = []
    for block in _BLOCK.finditer(page):
        source = any(m.end() == block.start() for m in _SOURCE.finditer(page))
        if block["language"] == "python" and not source:
            output = _OUTPUT.match(page, block.end())
            shown, after = (output["text"], output.end()) if output else (None, block.end())
            cpu = bool(output and output["cpu"])
            found.append(Snippet(block["text"], block.start(), block.end(), shown, after, cpu))
    return found


def is_folded(page: str, snippet: Snippet) -> bool:
    before = page[: snippet.start]
    return before.count("<details") > before.count("</details>")


def run(page: str, name: str) -> list[str]:
    """Run the snippets of a page; what each of them printed, without this machine's folders and times."""
    namespace: dict[str, object] = {"__name__": name}
    sys.modules.pop("edited", None)  # it numbers its copies, from one on each page
    printed = []
    with tempfile.TemporaryDirectory() as folder:
        for number, snippet in enumerate(snippets(page)):
            file = Path(folder) / f"{name}_{number}.py"  # a real file, for whoever asks where the code comes from
            file.write_text(snippet.text, encoding="utf-8")
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(snippet.text, str(file), "exec", dont_inherit=True), namespace)
            printed.append(neutral(output.getvalue()))
    return printed


def neutral(text: str) -> str:
    """Text without what differs from machine to machine: folders and seconds."""
    text = re.sub(r"[^\s(]*/edited-\w+/", "", text).replace(f"{ROOT}/", "")
    return re.sub(r"\d+\.\d+ s\b", "0.00 s", text)


def wrapped(text: str) -> str:
    """Long lines continued on the next one, two columns further in."""
    lines = []
    for line in text.splitlines():
        fits = len(line) <= WIDTH or _EXCERPT.match(line)
        below = " " * (len(line) - len(line.lstrip()) + 2)
        whole = {"break_long_words": False, "break_on_hyphens": False}  # a reader compares words
        lines += [line] if fits else textwrap.wrap(line, WIDTH, subsequent_indent=below, **whole)
    return "\n".join(lines) + "\n"


def with_outputs(page: str, printed: list[str]) -> str:
    """The page with an output block under every snippet that prints."""
    for snippet, text in reversed(list(zip(snippets(page), printed))):
        if snippet.cpu and _has_gpu():
            continue
        mark = "output without a GPU" if snippet.cpu else "output"
        block = f"\n<!-- {mark} -->\n```text\n{wrapped(text)}```\n" if text else ""
        page = page[: snippet.end] + block + page[snippet.after :]
    return page


def with_commands(page: str) -> str:
    """The page with what its commands print."""
    return _COMMAND.sub(
        lambda m: f"```console\n$ blackwell-matmul {m['arguments']}\n{on_terminal(m['arguments'])}```\n", page
    )


def with_places(page: str) -> str:
    """The page with what is predicted of its rung."""
    if not _PLACE.search(page):
        return page
    import cycles

    return _PLACE.sub(lambda m: f"{m[1]}{textwrap.fill(cycles.place(m['rung']), 130, break_on_hyphens=False)}\n", page)


def on_terminal(arguments: str) -> str:
    """What a command prints on a terminal that is as wide as an output may be, without colours."""
    from blackwell_matmul import cli

    terminal = {"TERM": "xterm", "FORCE_COLOR": "1", "COLUMNS": str(WIDTH)}
    printed = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), mock.patch.dict(os.environ, terminal):
        for name in re.findall(r"\b\w+\.py\b", arguments):
            shutil.copy(ROOT / "examples" / name, folder)
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
            cli.main(shlex.split(arguments))
    lines = neutral(re.sub(r"\x1b\[[0-9;]*m", "", printed.getvalue())).splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines)


def fresh(name: str) -> str:
    """A page of this folder as it should be."""
    sys.path[:0] = [each for each in (str(HERE), str(ROOT / "examples")) if each not in sys.path]
    import hopper

    page = hopper.filled(with_places(with_commands(expand((HERE / name).read_text(encoding="utf-8")))))
    return with_outputs(page, run(page, Path(name).stem))


def fresh_files() -> dict[str, str]:
    """The pages and notebooks of this folder as they should be."""
    import notebook

    files = {name: fresh(name) for name in (*LESSONS, *PAGES, *GUIDES)}
    return files | {notebook.name_of(name): notebook.text_of(files[name]) for name in LESSONS}


def main(check: bool) -> int:
    import pictures

    stale = []
    for name, new in fresh_files().items():
        if not (HERE / name).exists() or new != (HERE / name).read_text(encoding="utf-8"):
            stale.append(name)
            if not check:
                (HERE / name).write_text(new, encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        for path in pictures.draw(Path(folder)):
            old = pictures.IMAGES / path.name
            if not old.exists() or old.read_text() != path.read_text():
                stale.append(f"images/{path.name}")
                if not check:
                    old.write_text(path.read_text())
    for name in stale:
        print(f"{name} {'is out of date' if check else 'was refreshed'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
