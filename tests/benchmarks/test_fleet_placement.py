"""The report of `python -m benchmarks.fleet.placement`: when the ways count as alike."""

import dataclasses

from benchmarks.fleet.placement import WAYS, Measured, report

_ALIKE = [
    Measured(way, ("0.1", "0.2"), 5.0, 4.9, 5.1, None if place == 0 else 1.0, 4.0 + place, 0.01, ()) for place, way in enumerate(WAYS)
]


def judged(*rounds):
    lines, is_met = report(rounds, 1.5, 10, "")
    return "\n".join(lines), is_met


def test_the_same_instants_and_overlapping_intervals_are_alike():
    text, is_met = judged(_ALIKE, _ALIKE)
    assert is_met
    assert "overlap in 12 of 12 pairs of ways within a round; each p50 lies within the other's interval in 12" in text
    assert "| Dask | 1.00 (1.00 to 1.00) | 7.00 (7.00 to 7.00) | 3.00 (3.00 to 3.00) |" in text


def test_one_other_instant_is_not_alike():
    other = [*_ALIKE[:-1], dataclasses.replace(_ALIKE[-1], instants_s=("0.1", "0.200000001"))]
    text, is_met = judged(_ALIKE, other)
    assert not is_met
    assert "are the same in all 8 runs: no" in text


def test_an_interval_apart_from_the_others_is_not_alike():
    apart = [*_ALIKE[:-1], dataclasses.replace(_ALIKE[-1], p50_ms=5.3, p50_low_ms=5.2, p50_high_ms=5.4)]
    text, is_met = judged(apart)
    assert not is_met
    assert "overlap in 3 of 6 pairs" in text
    touching = [*_ALIKE[:-1], dataclasses.replace(_ALIKE[-1], p50_ms=5.15, p50_low_ms=5.05, p50_high_ms=5.25)]
    text, is_met = judged(touching)
    assert is_met
    assert "each p50 lies within the other's interval in 3" in text
