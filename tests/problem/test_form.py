"""What a product is besides its sizes: which words and numbers say it, and which are refused."""

import math
import re
from fractions import Fraction

import pytest

from blackwell_matmul import Epilogue, InputError


@pytest.mark.parametrize("name", ["alpha", "beta"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e39])
def test_a_factor_that_fp32_has_no_number_for_is_refused(name, value):
    with pytest.raises(InputError, match=rf"^{name} is {re.escape(str(value))}; it must be a finite number, from -3.4"):
        Epilogue(residual=True, **{name: value})
    with pytest.raises(InputError, match="finite"):
        Epilogue.parse("residual", **{name: value})


def test_any_other_number_is_a_factor():
    made = Epilogue(residual=True, alpha=Fraction(1, 4), beta=-3.4028234663852886e38)
    assert (made.alpha, made.beta) == (0.25, -3.4028234663852886e38)
