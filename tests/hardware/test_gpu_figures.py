"""Figures of time: each has a source, and says how it was come by."""

import dataclasses
import re
from pathlib import Path

import pytest

from blackwell_matmul.base.data_files import entries, read
from blackwell_matmul.base.errors import InputError
from blackwell_matmul.hardware.gpu_figures import MISSING, TIME_FIGURES, GpuFigure, figures_of
from blackwell_matmul.hardware.gpus import FIGURES, GPUS

ROOT = Path(__file__).resolve().parents[2]
LETTERS = read(FIGURES / "sources.toml")
FILES = {name: FIGURES / f"{name}.toml" for name in ("b200", "b300", "h200", "h100", "rtx_5090", "gb10")}
UNITS = {"_bytes_per_ns": "bytes/ns", "_bytes_per_cycle": "bytes/cycle", "_ghz": "GHz", "_ns": "ns"}
"""Units of names, by their endings; the first that fits."""


@pytest.mark.parametrize("gpu", TIME_FIGURES)
def test_each_figure_says_where_it_is_from(gpu):
    for field in dataclasses.fields(TIME_FIGURES[gpu]):
        figure = getattr(TIME_FIGURES[gpu], field.name)
        assert figure is None or (isinstance(figure, GpuFigure) and len(figure.source) > 1), field.name
        assert figure is None or figure.how in ("measured", "derived", "assumed")


def test_figures_are_of_known_gpus():
    assert {*TIME_FIGURES, *MISSING} == set(GPUS)
    assert figures_of("b200") is TIME_FIGURES["B200"]


@pytest.mark.parametrize(("gpu", "why"), [("gb200", "on a GB200 cannot .* clock"), ("B2000", "gpu is 'B2000'")])
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


@pytest.mark.parametrize(("gpu", "dense_fp4_tflops"), [("RTX 5090", 1676), ("GB10", 500)])
def test_the_rate_of_fp4_is_that_of_the_data_sheet(gpu, dense_fp4_tflops):
    """Half of 3352 and of 1000 TFLOPS, which are those with sparsity."""
    figures = TIME_FIGURES[gpu]
    tflops = GPUS[gpu].sm_count * figures.clock_ghz * 2 * 16 * 8 * 64 / figures.mma_sync_scaled_interval / 1e3
    assert tflops == pytest.approx(dense_fp4_tflops, rel=0.003)


def test_what_is_another_gpus_is_said_to_be_assumed():
    borrowed = TIME_FIGURES["RTX 5090"].fence_cycles
    assert borrowed == TIME_FIGURES["B200"].fence_cycles
    assert (borrowed.how, borrowed.source) == ("assumed", "as a B200's: QRC: the full fence")
    twice = TIME_FIGURES["GB10"].fence_cycles
    assert (twice.how, twice.source) == ("assumed", f"as an RTX 5090's: {borrowed.source}")


def every_entry():
    limits = read(FIGURES / "limits.toml")
    for name in limits:
        yield from ((f"{name}.{key}", each) for key, each in entries(FIGURES / "limits.toml", limits[name]).items())
    for name, file in FILES.items():
        yield from ((f"{name}.{key}", each) for key, each in entries(file, read(file)).items())


def test_every_file_of_figures_is_read_and_says_its_gpu():
    assert {*FIGURES.iterdir()} == {*FILES.values(), FIGURES / "limits.toml", FIGURES / "sources.toml"}
    assert {read(file)["gpu"] for file in FILES.values()} == {*TIME_FIGURES}
    for gpu in TIME_FIGURES:
        assert read(FIGURES / TIME_FIGURES._files[gpu])["gpu"] == gpu


def test_a_measured_figure_names_a_source_that_says_gpu_and_day():
    """A letter of sources.toml, or a GPU and a day of its own."""
    assert len([*every_entry()]) > 180
    for key, each in every_entry():
        letter = LETTERS.get(re.match(r"\w*", each.source)[0], {})
        if each.how == "measured" and key != "h200.cluster_share":
            assert (each.gpu or letter.get("gpu")) and (each.taken or letter.get("taken")), key


def test_files_that_figures_name_are_there():
    named = {file for _, each in every_entry() for file in each.file.split(", ")}
    named |= {file for each in LETTERS.values() for file in each.get("file", "").split(", ")}
    assert len(named) > 8 and all((ROOT / file).is_file() for file in named - {""})


def test_a_unit_is_that_of_the_name_and_of_the_other_gpus():
    units: dict[str, set[str]] = {}
    for key, each in every_entry():
        name = key.rpartition(".")[2]
        units.setdefault(name, set()).add(each.unit)
        said = next((unit for ending, unit in UNITS.items() if name.endswith(ending)), each.unit)
        assert each.unit == said, key
        assert not name.endswith("_cycles") or each.unit.split("/")[0] == "cycles", key
    assert all(len(found) == 1 for found in units.values())
