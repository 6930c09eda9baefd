"""The stored figures of surges are checked before they are believed."""

import pytest

from perfkit.result.load import SurgeLoad
from perfkit.result.surge import Surges, surge_problems
from tests.stored_results import changed

LOAD = SurgeLoad(rate_per_s=300, start_s=0.2, end_s=0.4)
SURGES = {
    "verdict": "recovers", "reason": "It did.",
    "repetitions": [
        {"repetition": 0, "before_per_s": 90.0, "during_per_s": 45.0, "after_per_s": 80.0, "kept_share": 0.5, "in_flight_left": 30, "recovery_s": 1.5},
        {"repetition": 1, "before_per_s": 110.0, "during_per_s": 55.0, "after_per_s": 90.0, "kept_share": 0.5, "in_flight_left": 40, "recovery_s": 2.5},
    ],
    "figures": {
        "before_per_s": {"value": 100.0, "low": 90.0, "high": 110.0}, "during_per_s": {"value": 50.0, "low": None, "high": None},
        "after_per_s": {"value": 85.0, "low": 80.0, "high": 90.0}, "kept_share": {"value": 0.5, "low": 0.5, "high": 0.5},
        "in_flight_left": {"value": 35.0, "low": 20.0, "high": 50.0}, "recovery_s": {"value": 2.0, "low": 1.0, "high": 3.0},
    },
    "slot_s": 0.1, "scheduled_per_s": [100.0, 110.0, 300.0, 300.0, 100.0], "good_per_s": [95.0, 105.0, 60.0, 40.0, 100.0],
}  # fmt: skip


def found(document):
    return [key for key, _ in surge_problems(Surges.model_validate(document), LOAD)]


def test_figures_that_fit_each_other_are_believed():
    assert found(SURGES) == []
    not_recovered = changed(changed(SURGES, "repetitions.1.recovery_s", None), "figures.recovery_s", ...)
    assert found({**not_recovered, "verdict": "undecided"}) == []
    assert found(changed(changed(changed(not_recovered, "repetitions.0.recovery_s", None), "verdict", "collapses"), "reason", "")) == []


@pytest.mark.parametrize(
    ("path", "value", "key"),
    [
        ("repetitions", [], "repetitions"),
        ("repetitions.0.kept_share", 0.6, "repetitions.0.kept_share"),
        ("repetitions.0.kept_share", None, "repetitions.0.kept_share"),
        ("repetitions.0.recovery_s", None, "figures.recovery_s"),
        ("figures.recovery_s", ..., "figures.recovery_s"),
        ("figures.in_flight_left.value", 36.0, "figures.in_flight_left"),
        ("figures.recovery_s.low", 2.5, "figures.recovery_s"),
        ("verdict", "collapses", "verdict"),
        ("slot_s", 0.0, "slot_s"),
        ("good_per_s", [95.0, 105.0], "slot_s"),
        ("good_per_s", [95.0, 105.0, 60.0, 40.0, 101.0], "good_per_s"),
        ("good_per_s", [90.0, 100.0, 60.0, 40.0, 100.0], "figures.before_per_s"),
        ("good_per_s", [95.0, 105.0, 60.0, 50.0, 100.0], "figures.during_per_s"),
    ],
)
def test_figures_that_no_run_has_written_are_named(path, value, key):
    assert key in found(changed(SURGES, path, value))
