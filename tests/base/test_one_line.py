"""Results print as one line, and a notebook shows them as tables."""

import functools
from html.parser import HTMLParser

import pytest
import torch

import blackwell_matmul as b
from blackwell_matmul.harness.outputs import compare
from blackwell_matmul.simulator import Severity

SIZE = (128, 64, 64)


class Tags(HTMLParser):
    """Every tag that opens is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.cells.append(data)


@functools.cache
def tensors():
    return tuple(torch.zeros(shape, dtype=torch.float16) for shape in ((128, 64), (64, 64), (128, 64)))


def script_result():
    a = tensors()[0]
    return b.ScriptResult("Copy", {}, "sm_100a", 0.5, seed=0, size=None, outputs=(compare("y", a, a + 1, None),))


MADE = {
    "Result": lambda: b.run_matmul("v1", *SIZE),
    "ScriptResult": script_result,
    "Report": lambda: b.check("v1", *SIZE),
    "Run": lambda: b.simulate(b.BlackwellMatmulV1, *SIZE, *tensors()),
    "ScheduleList": lambda: b.schedules("v1", *SIZE),
    "Prediction": lambda: b.predict("v1", *SIZE),
    "Verdict": lambda: b.check_matmul(*tensors()),
    "Bundle": lambda: b.compile("v1", *SIZE),
}


@functools.cache
def result(name):
    return MADE[name]()


@pytest.mark.parametrize("name", MADE)
def test_it_is_one_line(name):
    text = repr(result(name))
    assert type(result(name)).__name__ == name and text and "\n" not in text and len(text) < 400
    assert name == "Report" or str(result(name)) == text


@pytest.mark.parametrize("name", MADE)
def test_a_notebook_shows_a_table(name):
    page = Tags()
    page.feed(result(name)._repr_html_())
    assert not page.open and len(page.cells) > 5 and page.cells[0] == repr(result(name))


def test_findings_are_rows_and_text_is_escaped():
    finding = b.Finding("data-race", Severity.ERROR, "x < y & z")
    run = b.Run("<K>", "sm_100a", {}, (1, 1, 1), 0.1, (finding,))
    page = run._repr_html_()
    assert "<th>code</th>" in page and "<td>data-race</td>" in page and "x &lt; y &amp; z" in page and "<K>" not in page
