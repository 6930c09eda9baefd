"""Suggestions for mistyped words."""

import difflib
from collections.abc import Iterable

_LEAST_SIMILARITY = 0.5


def nearest(word: str, known: Iterable[str], most: int = 1) -> list[str]:
    """The known words that are similar to a word, at most `most`, the most similar first."""
    return difflib.get_close_matches(word, list(known), n=most, cutoff=_LEAST_SIMILARITY)


def suggestion(word: str, known: Iterable[str]) -> str:
    """The end of a message, such as `; did you mean --model?`; empty if no known word is similar."""
    near = nearest(word, known)
    return f"; did you mean {near[0]}?" if near else ""
