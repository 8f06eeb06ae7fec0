"""Proof that an error is one sentence."""

from __future__ import annotations


def one_sentence(error: BaseException, longest: int = 5000) -> str:
    """Return the text of an error: one line of at most so many characters, with a full stop and without a traceback."""
    text = str(error)
    assert text.endswith(".") and "\n" not in text and "Traceback" not in text, text
    assert len(text) <= longest, f"{len(text)} characters: {text}"
    return text
