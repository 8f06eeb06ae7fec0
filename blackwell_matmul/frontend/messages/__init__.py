"""From an exception of tilus to one sentence that names the statement and the remedy."""
