"""Numbers that others wrote as text, of any length: only ASCII digits are taken."""

LARGEST = 2**63 - 1


def whole_number(text: str | bytes, highest: int = LARGEST) -> int | None:
    """The number that text of ASCII digits alone stands for; None for any other text, and for a number above `highest`.

    Python's `int` also takes signs, spaces, underscores and digits of other scripts, and raises ValueError for more than 4,300 digits.
    """
    if not text.isascii() or not text.isdigit():
        return None
    digits = text.lstrip(b"0" if isinstance(text, bytes) else "0")  # type: ignore[arg-type]  # of the same type
    if len(digits) > len(str(highest)):
        return None
    number = int(digits or "0")
    return number if number <= highest else None


def plain_float(text: str) -> float:
    """As `float`, which also takes underscores and digits of other scripts; raises ValueError for those, too."""
    if not text.isascii() or "_" in text:
        raise ValueError(f"no number of ASCII digits: {text[:50]!r}")
    return float(text)
