"""The table of sequences."""

import pytest

from perfkit.report.load_points import sequences_table
from perfkit.report.run import run_page
from perfkit.result.counts import SequenceCounts
from perfkit.result.distribution import Distribution

TIMES = Distribution(
    count=40,
    min=10_000_000,
    mean=2e7,
    stddev=5e6,
    p50=20_000_000,
    p90=27_000_000,
    p95=None,
    p99=None,
    p99_9=None,
    p99_99=None,
    max=31_000_000,
)


@pytest.fixture
def result(synthetic):
    return synthetic(protocols=("http",), concurrencies=(1, 2)).write()


def with_sequences(point):
    changes = {
        "sequences": SequenceCounts(started=42, ended=40, failed=1),
        "sequence_time_ns": TIMES,
        "further_intervals": {"sequence_time": {"p50": (19e6, 21.5e6), "p90": (25e6, None)}},
    }
    return point.model_copy(update=changes)


def test_a_row_has_counts_rate_and_times_with_their_intervals(result):
    first, second = result.summary
    table = sequences_table([with_sequences(first), second])
    assert table.texts == [["http", "1", "42", "40", "1", "4.00/s", "20.0 ms", "27.0 ms", "–", "31.0 ms"]]
    ((_, cells),) = table.cells
    notes = [cell.note for cell in cells]
    assert "95% interval: 19.0 ms to 21.5 ms" in notes
    assert "95% interval: 25.0 ms to above" in notes
    assert "too few sequences ended" in notes


def test_other_loads_have_no_table(result):
    assert sequences_table(result.summary).rows == ()
    assert "Sequences" not in [section.title for section in run_page(result, {}).sections]
    mixed = result.model_copy(update={"summary": tuple(map(with_sequences, result.summary))})
    assert "Sequences" in [section.title for section in run_page(mixed, {}).sections]
