"""Sentences on a prediction: the bottleneck, and the gain of single changes."""
