"""Sentences for exceptions of tilus: each names the statement and the remedy."""
