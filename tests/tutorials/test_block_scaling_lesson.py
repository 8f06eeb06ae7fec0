"""The lesson about block scaling: its snippets print what it shows, and its numbers are those of the formats."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import refresh

pytestmark = pytest.mark.process  # matplotlib asks for the fonts once

PAGE = (refresh.HERE / "01-block-scaling.md").read_text(encoding="utf-8")


def test_snippets_print_what_the_page_shows() -> None:
    found = refresh.snippets(PAGE)
    assert len(found) == 3
    for snippet, text in zip(found, refresh.run(PAGE, "01-block-scaling"), strict=True):
        assert snippet.says_the_same(text)


def test_what_is_said_of_the_formats_holds() -> None:
    pytest.importorskip("matplotlib")
    from block_scaling import FORMATS, decibels, quantised, samples

    for data in samples().values():
        found = {name: decibels(data, quantised(data, name)) for name in FORMATS}
        assert 1.5 < found["nvfp4"] - found["mxfp4"] < 6.5
        assert abs(found["mxfp8"] - found["fp8, one scale for all"]) < 0.5
        assert found["fp4, one scale for all"] < found["mxfp4"]
    for name in ("mxfp8", "mxfp4", "nvfp4"):
        element, _, block, _ = FORMATS[name]
        bits = ml_dtypes.finfo(element).bits + 8 / block
        assert f"| {name} |" in PAGE and f"| {bits:g} |" in PAGE


def test_exercise_of_the_two_halves() -> None:
    """mxfp4 keeps nothing of small numbers that share a scale with large ones; nvfp4 does."""
    pytest.importorskip("matplotlib")
    from block_scaling import quantised

    x = np.concatenate([np.full((1, 16), 1000.0), np.full((1, 16), 1.0)], axis=1)
    assert not quantised(x, "mxfp4")[0, 16:].any() and quantised(x, "nvfp4")[0, 16:].all()
