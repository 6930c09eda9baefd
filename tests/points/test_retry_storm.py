"""Whether retries alone keep a target overloaded, by the seconds of a window."""

import dataclasses

import pytest

from perfkit.measurement.point_measurement import _executed_late_per_s
from perfkit.points.retry_storm import retry_storm_warnings
from perfkit.recorder.recording import AddressWindow
from perfkit.result.load import ClosedLoad, OpenLoad
from perfkit.stats.buckets import EMPTY
from perfkit.telemetry.series import Series
from tests.points.made_measurement import measurement

MS, S = 1_000_000, 10**9
SECONDS, CALM = 30, 10


def stormy(*, executed_per_s=100.0, offered=80, retries=160, answered=0, before=80, calm=CALM, seconds=SECONDS, **changes):
    """An open loop of 80 requests a second: some seconds of calm, in which all are answered, then so many retries and answers a second."""
    storm = seconds - calm
    made = measurement([10 * MS] * 100, window_s=seconds)
    window = dataclasses.replace(
        made.window,
        attempts_per_s=(offered,) * calm + (offered + retries,) * storm,
        retries_per_s=(0,) * calm + (retries,) * storm,
        finished_per_s=(before,) * calm + (answered,) * storm,
    )
    load = OpenLoad(rate_per_s=float(offered), arrivals="poisson")
    fields = {"load": load, "has_retries": True, "executed_late_per_s": executed_per_s, **changes}
    return dataclasses.replace(made, window=window, **fields)


def codes(measured):
    return [one.code for one in retry_storm_warnings(measured)]


def test_a_storm_is_named_with_its_rates():
    (warning,) = retry_storm_warnings(stormy())
    assert warning.code == "retry_storm"
    for part in ("of 240 attempts", "160 were retries", "0 of 80 requests were answered", "executed 100 a second", "answered 80 before"):
        assert part in warning.message


def test_rates_above_a_thousand_are_whole_numbers():
    (warning,) = retry_storm_warnings(stormy(executed_per_s=1234.4, offered=1200, retries=2400, before=1200))
    for part in ("of 3,600 attempts", "2,400 were retries", "0 of 1,200 requests", "executed 1,234 a second", "answered 1,200 before"):
        assert part in warning.message


@pytest.mark.parametrize(
    ("changes", "is_storm"),
    [
        ({"answered": 40}, True),
        ({"answered": 41}, False),  # more than half is answered
        ({"retries": 40}, True),
        ({"retries": 39}, False),  # fewer retries than half of the requests
        ({"executed_per_s": 80.0}, True),
        ({"executed_per_s": 79.0}, False),  # the target became slower than the rate
        ({"executed_per_s": 73.0, "before": 73}, False),  # it never was faster
        ({"executed_per_s": 215.0}, True),
        ({"executed_per_s": 216.0}, False),  # nine tenths of all attempts: only the time-out is too short
        ({"executed_per_s": 240.0}, False),
        ({"executed_per_s": 0.0}, False),  # it stands still
        ({"executed_per_s": None}, False),  # nobody knows
        ({"before": 72}, True),
        ({"before": 71}, False),  # it never answered this rate
        ({"calm": 3}, True),
        ({"calm": 2}, False),  # too short a calm
        ({"seconds": 15}, True),
        ({"seconds": 14}, False),  # too short a last third
        ({"offered": 4, "retries": 8, "before": 4, "executed_per_s": 9.0}, False),  # too few requests
        ({"load_varies": True}, False),
        ({"has_retries": False}, False),
        ({"load": ClosedLoad(concurrency=4)}, False),  # its slots bound the load
    ],
)
def test_each_part_of_the_evidence_is_needed(changes, is_storm):
    assert codes(stormy(**changes)) == ["retry_storm"] * is_storm


def test_the_second_in_which_the_stall_begins_does_not_count_as_what_the_target_could_do():
    measured = stormy(before=74)
    begun = (*measured.window.finished_per_s[: CALM - 1], 0, *measured.window.finished_per_s[CALM:])
    assert codes(dataclasses.replace(measured, window=dataclasses.replace(measured.window, finished_per_s=begun))) == ["retry_storm"]


def test_of_several_addresses_nothing_is_said_because_one_is_sampled():
    part = AddressWindow({}, 0, EMPTY, ())
    measured = stormy()
    window = dataclasses.replace(measured.window, by_address={"http://a:1": part, "http://b:1": part})
    assert codes(dataclasses.replace(measured, window=window)) == []


def test_a_recovered_target_is_not_named():
    measured = stormy(retries=4, answered=80)
    assert codes(measured) == []


def test_what_the_server_executed_late_is_the_mean_of_its_samples_in_the_last_third():
    window = dataclasses.replace(stormy().window, start_ns=100 * S, end_ns=130 * S)
    instants, values = tuple(int((100 + at_s) * S) for at_s in (1, 19.9, 20, 25, 30, 30.1)), (9.0, 9.0, 80.0, 100.0, 90.0, 7.0)
    series = [Series("server_answers_per_s", "per_s", {}, instants, values), Series("server_queue", "ns", {}, instants, values)]
    assert _executed_late_per_s(window, series) == 90.0
    assert _executed_late_per_s(window, series[1:]) is None
