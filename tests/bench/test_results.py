"""Each file in bench/results is named by a page, a script or a data file, and each link to one leads to a file."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results"
READERS = ("*.md", "docs/*.md", "tutorials/*.md", "bench/**/*.md", "bench/**/*.py", "blackwell_matmul/**/*.toml")


def text_of_the_readers() -> str:
    paths = sorted({path for pattern in READERS for path in ROOT.glob(pattern)})
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


def test_each_result_is_named_by_a_reader() -> None:
    text = text_of_the_readers()
    assert [path.name for path in RESULTS.iterdir() if path.name not in text] == []


def test_each_link_to_a_result_leads_to_a_file() -> None:
    links = set(re.findall(r"\(\S*?results/(\w+\.\w+(?:\.gz)?)\)", text_of_the_readers()))
    assert links
    assert sorted(links - {path.name for path in RESULTS.iterdir()}) == []
