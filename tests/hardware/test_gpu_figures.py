"""Figures of time: each has a source, and says how it was come by."""

import dataclasses

import pytest

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.hardware.gpu_figures import MISSING, TIME_FIGURES, GpuFigure, figures_of
from blackwell_matmul.hardware.gpus import GPUS


@pytest.mark.parametrize("gpu", TIME_FIGURES)
def test_each_figure_says_where_it_is_from(gpu):
    for field in dataclasses.fields(TIME_FIGURES[gpu]):
        figure = getattr(TIME_FIGURES[gpu], field.name)
        assert figure is None or (isinstance(figure, GpuFigure) and len(figure.source) > 1), field.name
        assert figure is None or figure.how in ("measured", "derived", "assumed")


def test_figures_are_of_known_gpus():
    assert {*TIME_FIGURES, *MISSING} == set(GPUS)
    assert figures_of("b200") is TIME_FIGURES["B200"]


@pytest.mark.parametrize(("gpu", "why"), [("gb10", "on a GB10 cannot .* mma.sync"), ("B2000", "gpu is 'B2000'")])
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


def test_a_geforces_rate_of_mma_sync_is_that_of_its_data_sheet():
    figures, gpu = TIME_FIGURES["RTX 5090"], GPUS["RTX 5090"]
    tflops = gpu.sm_count * figures.clock_ghz * 2 * 16 * 8 * 16 / figures.mma_sync_interval / 1e3
    assert tflops == pytest.approx(gpu.dense_fp16_tflops, rel=0.001)


def test_what_is_another_gpus_is_said_to_be_assumed():
    borrowed = TIME_FIGURES["RTX 5090"].fence_cycles
    assert borrowed == TIME_FIGURES["B200"].fence_cycles
    assert (borrowed.how, borrowed.source) == ("assumed", "as a B200's: QRC: the full fence")
