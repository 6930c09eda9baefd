"""`latency.hlog`: what is written is read back, by perfkit and by the HdrHistogram library's own reader."""

import contextlib

import hdrh.log
import numpy as np
import pytest
from hdrh.histogram import HdrHistogram

from perfkit.errors import ResultError
from perfkit.result.file import ResultWriter
from perfkit.result.interval_log import PointLines, interval_lines, read_intervals, read_window_starts
from perfkit.result.rotating_log import RotatingLog, cut_log, log_files
from perfkit.stats.buckets import DIGITS, HIGHEST_NS, LOWEST_NS, BucketCounts

STARTED_AT_S = 1_767_323_045.678
MS, S = 1_000_000, 1_000_000_000
INTERVALS: list[tuple[str, float, int, list[int]]] = [
    ("p0.r0", 1.25, 0, [MS, 2 * MS, 2 * MS]),
    ("p0.r0", 1.25, 1, [70_000]),
    ("p0.r0", 1.25, 0, [900 * MS]),
    ("p12.r3", 61.0, 4, np.random.default_rng(0).integers(1_000, HIGHEST_NS, 5_000).tolist()),
    ("p12.r3", 61.0, 5, []),
]


def counts(histogram):
    return {int(item.value_iterated_to): item.count_at_value_iterated_to for item in histogram.get_recorded_iterator()}


@pytest.fixture
def folder(tmp_path, result):
    writer = ResultWriter(tmp_path / "out", STARTED_AT_S)
    for number, (tag, window_start_s, index, values) in enumerate(INTERVALS):
        if number == 1:
            writer.log_point(["#[Window p0.r0 starts at 1.250 s]\n"])  # a comment to other readers
        writer.log_point([interval_lines(tag, window_start_s + index, {"service_time": BucketCounts.of(values)})])
    writer.save(result)
    return writer.commit()


def test_times_that_are_not_logged_are_left_out():
    counts = BucketCounts.of([MS])
    both = interval_lines("p0.r0", 0.0, {"new_time": counts, "service_time": counts})
    assert both == interval_lines("p0.r0", 0.0, {"service_time": counts})


def test_intervals_are_read_back_as_they_were_written(folder):
    found = list(read_intervals(folder))
    assert [(tag, start_s) for tag, start_s, _ in found] == [(f"{tag}.service", start_s + index) for tag, start_s, index, _ in INTERVALS]
    for (_, _, read), (_, _, _, values) in zip(found, INTERVALS, strict=True):
        written = BucketCounts.of(values)
        assert read.count == len(values)
        assert (read.indices.tolist(), read.counts.tolist()) == (written.indices.tolist(), written.counts.tolist())


def test_the_log_states_where_each_window_starts(tmp_path, result):
    writer = ResultWriter(tmp_path / "out", STARTED_AT_S)
    for tag, first_s in (("p0.r0", 0), ("p12.r3", 2)):
        lines, times = PointLines(tag, 0), {"service_time": BucketCounts.of([MS])}
        logged = [lines.of_second(1_250 * MS, second, 0, times) for second in (1, 3) if second >= first_s]
        writer.log_point([*logged, lines.of_window(1_250 * MS, first_s)])
    writer.save(result)
    folder = writer.commit()
    assert read_window_starts(folder) == {(0, 0): 1.25, (12, 3): 3.25}
    intervals = [(tag, start_s) for tag, start_s, _ in read_intervals(folder)]
    assert intervals == [("p0.r0.service", 2.25), ("p0.r0.service", 4.25), ("p12.r3.service", 4.25)]


def test_the_librarys_reader_reads_the_same_intervals_tags_and_times(folder):
    with contextlib.closing(
        hdrh.log.HistogramLogReader(str(folder / "latency.hlog"), HdrHistogram(LOWEST_NS, HIGHEST_NS, DIGITS))
    ) as reader:
        for tag, window_start_s, index, values in INTERVALS:
            found = reader.get_next_interval_histogram()
            expected = HdrHistogram(LOWEST_NS, HIGHEST_NS, DIGITS)
            for value in values:
                assert expected.record_value(int(value))
            assert found.get_tag() == f"{tag}.service"
            assert found.get_start_time_stamp() == pytest.approx((STARTED_AT_S + window_start_s + index) * 1000)
            assert found.get_end_time_stamp() - found.get_start_time_stamp() == pytest.approx(1000)
            assert found.get_total_count() == len(values)
            assert counts(found) == counts(expected)
        assert reader.get_next_interval_histogram() is None
        assert reader.get_start_time_sec() == STARTED_AT_S


def test_the_maximum_of_an_interval_is_logged_in_milliseconds(folder):
    lines = [line for line in (folder / "latency.hlog").read_text().splitlines() if line.startswith("Tag=")]
    assert [float(line.split(",")[3]) for line in lines[:3]] == pytest.approx([2, 0.07, 900], rel=0.01)


def test_a_log_can_be_read_up_to_the_last_save(tmp_path, result):
    writer = ResultWriter(tmp_path / "out", STARTED_AT_S)
    writer.save(result)
    assert list(read_intervals(writer.partial)) == []
    writer.log_point([interval_lines("p0.r0", 3.0, {"service_time": BucketCounts.of([MS])})])
    writer.save(result)
    assert [(tag, start_s) for tag, start_s, _ in read_intervals(writer.partial)] == [("p0.r0.service", 3.0)]
    writer.discard()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda line: line[:-20], "not an HdrHistogram payload: "),
        (lambda line: line.replace("HIST", "HISS"), "not an HdrHistogram payload: "),
        (lambda line: line[:30], "not an interval of an HdrHistogram log"),
        (lambda line: line.replace("1.250", "1.2.5"), "not an interval of an HdrHistogram log"),
        (lambda line: line.replace("1.250", "9" * 400), "not an interval of an HdrHistogram log"),
        (lambda _: "junk", "not an interval of an HdrHistogram log"),
        (lambda line: line + "x" * 2**20, "not an interval of an HdrHistogram log"),
    ],
)
def test_a_damaged_interval_is_reported_with_its_line(folder, damage, message):
    (folder / "checksums.sha256").unlink()
    file = folder / "latency.hlog"
    lines = file.read_text().splitlines()
    assert lines[4].startswith("Tag=p0.r0.service,1.250,1.000,")
    lines[4] = damage(lines[4])
    file.write_text("\n".join(lines))
    with pytest.raises(ResultError) as caught:
        list(read_intervals(folder))
    assert str(caught.value).startswith(f"{file}:5: {message}")


def test_a_missing_log_and_bytes_that_are_not_ascii_are_reported(tmp_path):
    with pytest.raises(ResultError, match=r"latency\.hlog: cannot be read: .*No such file"):
        list(read_intervals(tmp_path))
    (tmp_path / "latency.hlog").write_bytes(b"\xff")
    with pytest.raises(ResultError, match=r"latency\.hlog: cannot be read: 'ascii' codec"):
        list(read_intervals(tmp_path))


def test_a_large_log_continues_in_further_files_which_the_librarys_reader_reads_one_by_one(tmp_path, result):
    writer = ResultWriter(tmp_path / "out", STARTED_AT_S, largest_log_bytes=600)
    lines = PointLines("p0.r0", 0)
    seconds = [lines.of_second(S, second, 0, {"service_time": BucketCounts.of([MS] * (second + 1))}) for second in range(9)]
    writer.log_point([*seconds, lines.of_window(S, 0)])
    writer.save(result)
    folder = writer.commit()
    files = log_files(folder)
    assert len(files) > 2
    assert [file.name for file in files[:3]] == ["latency.hlog", "latency-2.hlog", "latency-3.hlog"]
    assert all(file.stat().st_size <= 600 for file in files)
    assert [(start_s, times.count) for _, start_s, times in read_intervals(folder)] == [(1.0 + second, second + 1) for second in range(9)]
    assert read_window_starts(folder) == {(0, 0): 1.0}
    totals = []
    for file in files:
        with contextlib.closing(hdrh.log.HistogramLogReader(str(file), HdrHistogram(LOWEST_NS, HIGHEST_NS, DIGITS))) as reader:
            while (histogram := reader.get_next_interval_histogram()) is not None:
                totals.append(histogram.get_total_count())
            assert reader.get_start_time_sec() == STARTED_AT_S
    assert totals == list(range(1, 10))
    listed = (folder / "checksums.sha256").read_text()
    assert all(file.name in listed for file in files)
    files[1].write_text(files[1].read_text().replace("1.000", "2.000"))
    with pytest.raises(ResultError, match=r"latency-2\.hlog: the file differs from its checksum"):
        list(read_intervals(folder))
    ResultWriter(folder, 0.0).discard()  # may be replaced like any other result


def test_a_log_of_several_files_is_cut_and_continued(tmp_path):
    empty = RotatingLog(tmp_path, STARTED_AT_S)
    empty.close()
    (head,) = empty.sizes().values()
    log = RotatingLog(tmp_path, STARTED_AT_S, head + 20)
    for letter in "abcd":
        log.write(f"#{letter * 18}\n")
    log.close()
    assert list(log.sizes().values()) == [head + 20] * 4
    cut_log(tmp_path, 2 * (head + 20) - 20)
    log = RotatingLog(tmp_path, STARTED_AT_S, head + 20, continues=True)
    for letter in "xy":
        log.write(f"#{letter * 18}\n")
    log.close()
    assert [file.read_text()[head:] for file in log_files(tmp_path)] == [f"#{letter * 18}\n" for letter in "axy"]
