"""Every study that can be named has trials and a screen."""

from __future__ import annotations

from importlib import import_module

import pytest

from blackwell_matmul_studies import STUDIES, trials_of
from blackwell_matmul_studies.views import studies_view


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES)
def test_a_study_has_trials_and_a_screen(study):
    few, all_of_them = (trials_of(study)(quick) for quick in (True, False))
    assert 0 < len(few) < len(all_of_them)
    assert {trial.name for trial in few} <= {trial.name for trial in all_of_them}
    assert callable(import_module(studies_view._VIEWS[study]).lines)


def test_no_screen_is_without_a_study():
    assert set(studies_view._VIEWS) == set(STUDIES)
