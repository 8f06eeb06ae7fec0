"""The fixture that runs a test over each of the sample scripts."""

from __future__ import annotations

import pytest
from frontend_samples import CALLS, built

from blackwell_matmul.frontend import Program


@pytest.fixture(params=CALLS)
def program(request: pytest.FixtureRequest) -> Program:
    return built(request.param)
