"""Figures of time: each has a source, and says how it was come by."""

import dataclasses

import pytest

from blackwell_matmul.errors import InputError
from blackwell_matmul.gpu_figures import TIME_FIGURES, GpuFigure, figures_of
from blackwell_matmul.gpus import GPUS


@pytest.mark.parametrize("gpu", TIME_FIGURES)
def test_each_figure_says_where_it_is_from(gpu):
    for field in dataclasses.fields(TIME_FIGURES[gpu]):
        figure = getattr(TIME_FIGURES[gpu], field.name)
        assert figure is None or (isinstance(figure, GpuFigure) and len(figure.source) > 1), field.name
        assert figure is None or figure.how in ("measured", "derived", "assumed")


def test_figures_are_of_known_gpus():
    assert set(TIME_FIGURES) <= set(GPUS)
    assert figures_of("b200") is TIME_FIGURES["B200"]


@pytest.mark.parametrize(("gpu", "why"), [("RTX 5090", "too few published figures"), ("B2000", "gpu is 'B2000'")])
def test_a_gpu_without_figures_is_refused_with_the_alternatives(gpu, why):
    with pytest.raises(InputError, match=why) as refused:
        figures_of(gpu)
    assert "B200, B300" in str(refused.value)


def test_most_of_what_carries_the_result_is_measured():
    every = [getattr(TIME_FIGURES["B200"], field.name) for field in dataclasses.fields(TIME_FIGURES["B200"])]
    assumed = [figure for figure in every if figure is not None and figure.how == "assumed"]
    assert len(assumed) <= 7


@pytest.mark.parametrize(("size", "at_once"), [(1, 132), (2, 66), (4, 30), (8, 15), (200, 1)])
def test_large_clusters_do_not_fill_every_sm(size, at_once):
    assert figures_of("H200").clusters_at_once(132, size) == at_once
