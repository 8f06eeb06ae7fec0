"""The tables of the study of torch.compile, on made-up rows."""

from __future__ import annotations

import io
import re

import pytest
from made_up_compile import broken, results_of, row
from rich.console import Console

from blackwell_matmul_studies.views import studies_view, torch_compile_view


@pytest.fixture
def drawn(tmp_path):
    def draw(*rows) -> str:
        out = io.StringIO()
        console = Console(width=100, file=out, highlight=False, markup=False)
        for line in torch_compile_view.lines(results_of(tmp_path, *rows)):
            console.print(line)
        return out.getvalue()

    return draw


def test_a_workload_has_a_table_with_eager_first(drawn):
    text = drawn(row("default", "Llama m=1 bf16", 1.25, 0.8), row("CUDA graphs", "Llama m=1 bf16", None, 1.5))
    table = text[text.index("Llama m=1 bf16") :].splitlines()
    assert table[1].split() == ["template", "kernels", "TFLOPS", "speed-up", "in", "calls", "compile", "error"]
    assert table[2].split() == ["eager", "100.00", "µs", "687.2", "1.00", "1.00", "1.0"]
    assert table[3].split() == ["default", "cuBLAS", "80.00", "µs", "859.0", "1.25", "0.80", "2.0", "s", "1.0"]
    assert table[4].split() == ["CUDA", "graphs", "cuBLAS", "1.50", "2.0", "s", "1.0"]


def test_what_is_wrong_is_said(drawn):
    text = drawn(row("default", "a", 1.0, 1.0, dynamic=True), broken("C++ wrapper", "a"))
    assert "default: its sizes turned dynamic" in text
    assert "C++ wrapper: failed (compiling): no headers" in text
    assert "Recommended: eager." in text


def test_the_recommendation_ends_with_a_snippet(drawn):
    rows = [row("default", "a", 1.0, 0.9), row("all TMA", "a", 1.2, 1.1), row("CUDA graphs", "a", None, 2.0)]
    text = re.sub(r"\s+", " ", drawn(*rows))
    assert "Recommended: all TMA, 1.20 times as fast as eager on the GPU;" in text
    assert "export TORCHINDUCTOR_MAX_AUTOTUNE=1" in text
    assert "No variable sets triton.use_tensor_descriptor or assume_aligned_inputs." in text
    assert "For a program that waits for its launches: CUDA graphs, 2.00 times" in text


def test_what_was_left_out_and_what_nothing_reads_is_said(drawn):
    text = drawn()
    assert "Left out: CUDA graphs with the C++ wrapper" in text
    assert "Nothing in this torch and Triton reads TRITON_ENABLE_TMA." in text


def test_the_command_draws_it(tmp_path):
    lines = studies_view.study_lines(results_of(tmp_path, row("default", "a", 1.0, 1.0)))
    assert any("Measured on NVIDIA H200" in str(line) for line in lines)
