"""Sentences on a prediction: what limits the time, and what would change with one figure changed."""
