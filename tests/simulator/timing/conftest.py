"""Kernels of these tests are not tried with other knobs, which takes as long again; those of test_predicting.py are."""

import pytest

from blackwell_matmul.harness import predicting


@pytest.fixture(autouse=True)
def no_other_knobs(monkeypatch):
    monkeypatch.setattr(predicting, "knobs_beside", lambda _: [])


@pytest.fixture
def no_other_schedules(monkeypatch):
    """Where what is said of those is not read, which takes most of the time; what is predicted then is not kept."""
    monkeypatch.setattr(predicting, "neighbours", lambda *_: [])
