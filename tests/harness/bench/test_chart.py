"""Pictures from made-up results: what is in them, not how they look."""

from __future__ import annotations

import builtins
import sys

import made_up
import pytest

from blackwell_matmul.base.errors import InputError, UnsupportedError
from blackwell_matmul.cli.views import bench_view, terminal
from blackwell_matmul.harness.bench import chart
from blackwell_matmul.harness.bench.results import SuiteResults, saved_results
from blackwell_matmul.problem.problem import Problem


@pytest.mark.slow
def test_a_ladder_is_drawn_the_same_each_time(tmp_path):
    book = made_up.ladder(tmp_path)
    svg, png = chart.draw(book, tmp_path)
    first = svg.read_bytes()
    assert (svg.name, png.name) == ("ladder.svg", "ladder.png") and png.stat().st_size > 10_000
    chart.draw(book, tmp_path)
    assert svg.read_bytes() == first


@pytest.mark.process  # matplotlib asks for the fonts once
def test_other_suites_get_their_percentages(tmp_path):
    book = SuiteResults(tmp_path, "odd", made_up.MACHINE)
    for m in (1, 63, 1792):
        for name in ("cublas", "h6"):
            book.put(made_up.row(name, Problem(m, 4096, 4096)))
    assert [file.name for file in chart.draw(book, tmp_path)] == ["odd.svg", "odd.png"]


def test_nothing_timed_is_nothing_drawn(tmp_path):
    assert chart.draw(SuiteResults(tmp_path, "ladder", made_up.MACHINE), tmp_path) == []


@pytest.mark.process  # matplotlib asks for the fonts once
def test_pictures_are_drawn_later_from_the_file(tmp_path):
    made_up.ladder(tmp_path, sizes=(1024,), dtypes=("fp16",)).save()
    (book,) = saved_results(tmp_path)
    assert len(chart.draw(book, tmp_path)) == 2
    with pytest.raises(InputError, match="bench --out"):
        saved_results(tmp_path / "nowhere")


def test_without_matplotlib_a_sentence(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.partition(".")[0] == "matplotlib":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(chart.importlib, "import_module", without)
    assert not chart.available()
    with pytest.raises(UnsupportedError, match=r"drawing needs matplotlib, .*--draw"):
        chart.draw(made_up.ladder(tmp_path, sizes=(1024,)), tmp_path)


def test_the_table_of_a_whole_ladder(tmp_path):
    book = made_up.ladder(tmp_path)
    text = terminal.rendered(bench_view.result_lines(book))
    line = next(line for line in text.splitlines() if line.strip().startswith("h6"))
    assert line.split() == ["h6", "4.94", "µs", "2.0%", "434.7", "94.9%", "44.0%", "block_m=128,block_n=256"]
    assert "h6: 94.9% of cuBLAS, the geometric mean over 8 of 8 problems, squares" in text
    assert "Measured on Made-up GPU (sm_90a, 132 SMs); dense peak 989 TFLOPS, driver 580.1, torch 2.11.0." in text
    assert "SM clock: 1725 MHz, power: 683 W" in text and "had not settled" not in text
    book.sessions["x"] = made_up.session(settled=False)
    assert "The times of 1 of 9 problems had not settled" in terminal.rendered(bench_view.result_lines(book))
