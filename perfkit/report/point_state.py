"""A load point's state in one or two words, for tables and the live view. Pure, and light to import."""

from collections.abc import Collection, Mapping

OK, NOT_VALID = "ok", "NOT VALID"
_DOUBTS: Mapping[str, str] = {"gpu_idle": "GPU idle", "overloaded": "overloaded", "not_steady": "not steady"}
_VERDICTS = {"violated": "SLO missed", "inconclusive": "SLO unclear"}


def point_state(*, is_valid: bool, codes: Collection[str], verdict: str | None = None) -> str:
    """`ok`, `overloaded`, `NOT VALID` and so on, from the codes of the point's warnings and the SLO's verdict."""
    if not is_valid:
        return NOT_VALID
    return next((word for code, word in _DOUBTS.items() if code in codes), "") or _VERDICTS.get(verdict or "", OK)
