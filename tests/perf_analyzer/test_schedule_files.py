"""Files of intervals for models with sequences: the same instants as perf_analyzer's loop over the file, for as long as a run lasts."""

import pathlib

import pytest

from perfkit.errors import UsageError
from perfkit.perf_analyzer.measurement import with_looped_intervals
from perfkit.perf_analyzer.options import Options, SequenceOptions
from perfkit.perf_analyzer.scenario import scenario_for
from perfkit.scenario.file import read_document

SEQUENCES = SequenceOptions(is_given=True, live=3)


def options(tmp_path, text="10000\n20000\n", **changes):
    (tmp_path / "intervals.txt").write_text(text)
    given = {
        "load_mode": "request_intervals",
        "intervals_file": str(tmp_path / "intervals.txt"),
        "sequences": SEQUENCES,
        "interval_ms": 300,
    }
    return Options("m", **{**given, **changes})


def seconds(made):
    return [float(line) for line in pathlib.Path(made.looped_intervals_file).read_text().split()]


def test_the_intervals_are_repeated_in_seconds_for_longer_than_three_windows(tmp_path):
    made = seconds(with_looped_intervals(options(tmp_path, measurement_request_count=1), tmp_path / "made"))
    assert made[:4] == [0.01, 0.02, 0.01, 0.02]
    assert sum(made) > 3 * 0.3
    assert len(made) < 200, "for a run, and not for hours"


def test_a_number_of_requests_has_as_many_intervals(tmp_path):
    made = seconds(with_looped_intervals(options(tmp_path, request_count=5001), tmp_path / "made"))
    assert len(made) > 5001


def test_other_loads_and_models_without_sequences_keep_the_replay_of_the_file(tmp_path):
    for one in (options(tmp_path, sequences=SequenceOptions()), options(tmp_path, load_mode="concurrency")):
        assert with_looped_intervals(one, tmp_path / "made") is one


@pytest.mark.parametrize("text", ["", "0\n0\n", "ten\n", "10\n-10\n"])
def test_a_file_without_usable_intervals_is_refused(tmp_path, text):
    with pytest.raises(UsageError, match=r"^--request-intervals .*intervals\.txt: expected "):
        with_looped_intervals(options(tmp_path, text), tmp_path / "made")


def test_a_run_of_too_many_arrivals_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"^--request-intervals: a run would have more than 10,000,000 arrivals"):
        with_looped_intervals(options(tmp_path, "1\n", interval_ms=10_000), tmp_path / "made")


def test_the_scenario_has_sequences_that_are_live_at_once_and_the_instants_of_the_file(tmp_path):
    made = with_looped_intervals(options(tmp_path), tmp_path / "made")
    scenario = read_document(scenario_for([made], 66), environ={}).scenario
    assert scenario.sequences.live == 3
    assert (scenario.load.open.arrivals, scenario.load.open.trace_holds) == ("trace", "intervals")
    assert scenario.load.open.trace == made.looped_intervals_file
    assert scenario.warmup_ns == 0
