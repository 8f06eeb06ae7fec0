"""CTAs that do the same as an earlier one: their values alone are computed."""
