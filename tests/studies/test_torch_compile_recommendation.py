"""From rows to what to switch on."""

from __future__ import annotations

import pytest
from made_up_compile import broken, row

from blackwell_matmul_studies.torch_compile.recommendation import exports, figures, means, recommended, snippet


def mean_of(rows):
    return {each.configuration: each for each in means(figures(rows))}


def test_means_are_geometric_and_over_the_workloads_that_all_have():
    rows = [
        *(row("default", name, speed, 1.0) for name, speed in (("a", 1.0), ("b", 4.0), ("c", 9.0))),
        *(row("max-autotune", name, speed, 1.0) for name, speed in (("a", 2.0), ("b", 2.0))),
        row("max-autotune", "int8", 7.0, 7.0),
    ]
    found = mean_of(rows)
    assert found["default"].kernels == pytest.approx(2.0) and found["max-autotune"].kernels == pytest.approx(2.0)
    assert {each.of for each in found.values()} == {2}


def test_the_fastest_is_recommended():
    rows = [row("default", "a", 1.0, 0.9), row("TMA loads", "a", 1.3, 1.1), row("max-autotune", "a", 1.1, 1.0)]
    assert recommended(means(figures(rows)), "kernels").configuration == "TMA loads"


def test_of_equals_the_one_that_compiles_fastest():
    rows = [row("TMA loads", "a", 1.200, 1.0, compile_s=40.0), row("max-autotune", "a", 1.195, 1.0, compile_s=20.0)]
    assert recommended(means(figures(rows)), "kernels").configuration == "max-autotune"


def test_nothing_is_recommended_where_nothing_helps():
    rows = [row("default", "a", 1.0, 0.9), row("max-autotune", "a", 1.01, 0.95)]
    assert recommended(means(figures(rows)), "kernels") is None and recommended([], "calls") is None


@pytest.mark.parametrize("fault", [{"error": 0.03}, {"dynamic": True}, {"compiled_times": 2}])
def test_one_that_is_wrong_or_dynamic_anywhere_is_not_recommended(fault):
    rows = [row("default", name, 1.1, 1.1) for name in "ab"]
    rows += [row("TMA loads", "a", 3.0, 3.0), row("TMA loads", "b", 3.0, 3.0, **fault)]
    found = mean_of(rows)
    assert found["TMA loads"].good == 1 and found["TMA loads"].of == 2
    assert recommended(list(found.values()), "kernels").configuration == "default"


def test_one_that_failed_somewhere_is_not_recommended():
    rows = [row("default", "a", 1.1, 1.1), broken("TMA loads", "a")]
    found = means(figures(rows))
    assert recommended(found, "kernels").configuration == "default"
    assert figures(rows)[1].problem == "failed (compiling): no headers"


def test_graphs_of_its_own_count_in_calls_only():
    found = means(figures([row("default", "a", 1.1, 1.0), row("CUDA graphs", "a", None, 1.5)]))
    assert recommended(found, "kernels").configuration == "default"
    assert recommended(found, "calls").configuration == "CUDA graphs"


def test_an_exact_eager_asks_for_exact_results():
    exact, wrong = (row("max-autotune", "int8", 1.0, 1.0, error=error, eager_error=0.0) for error in (0.0, 1.0))
    assert [each.problem for each in figures([exact, wrong])] == ["", "its error is 1 and eager's 0"]


def test_the_snippet_can_be_pasted():
    (tma,) = means(figures([row("all TMA", "a", 1.2, 1.2)]))
    program, shell = snippet(tma), exports(tma)
    compile(program, "snippet", "exec")
    assert '"triton.enable_persistent_tma_matmul": True' in program and "dynamic=False" in program
    assert "ENABLE_PERSISTENT_TMA_MATMUL=1" in shell and "descriptor" not in shell
    (default,) = means(figures([row("default", "a", 1.2, 1.2)]))
    assert snippet(default) == "model = torch.compile(model, dynamic=False)" and exports(default) == ""
