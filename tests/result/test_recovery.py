"""What a killed run, or a power cut, leaves on the disk, and the result that is made of it."""

import contextlib

import hdrh.log
import pytest
from hdrh.histogram import HdrHistogram

from perfkit.errors import ResultError
from perfkit.recorder.recording import Interval
from perfkit.result.checkpoint import Checkpoint
from perfkit.result.file import ResultWriter, read_result
from perfkit.result.interval_log import PointLines, log_files, read_intervals, read_window_starts
from perfkit.result.interval_spool import IntervalSpool, spooled_lines
from perfkit.result.output_folder import locked
from perfkit.result.recovery import recover_result
from perfkit.result.rotating_log import RotatingLog, cut_log
from perfkit.stats.buckets import DIGITS, HIGHEST_NS, LOWEST_NS, BucketCounts

MS, S = 1_000_000, 1_000_000_000
STARTED_AT_S = 1_767_323_045.678


def interval(index, values=1):
    return Interval(index, {"service_time": BucketCounts.of([MS] * values)})


@pytest.fixture
def partial(tmp_path, result):
    """The folder of a run that was killed 5 s into its window, with a checkpoint of 3 s: two workers with 2 + 1 times; a third was lost."""
    writer = ResultWriter(tmp_path / "out", STARTED_AT_S)
    spool = writer.interval_spool("p0.r0", PointLines("p0.r0", 0))
    for worker, values in ((0, 2), (1, 1), (2, 9)):
        spool.add(worker, S, interval(0, 50))  # the warm-up
        spool.add(worker, S, interval(2, values))
        spool.add(worker, S, interval(5, 99))  # of the next checkpoint, but logged before this one
        spool.mark(worker, 5 * S)
        spool.add(worker, S, interval(2, 99))  # late answers of the next checkpoint
    spool.lose(2)
    spool.count_until(5 * S)
    checkpoint = Checkpoint("2026-11-24T05:00:00+00:00", "3 s into the window of load point 1 of 2", 1, 4, spool.window_lines(1))
    writer.checkpoint(result, spool, checkpoint)()
    spool.flush()
    yield writer.abort()
    spool.remove()


def counts(folder):
    found = dict[str, list[tuple[float, int]]]()
    for tag, start_s, times in read_intervals(folder):
        found.setdefault(tag, []).append((start_s, times.count))
    return found


def test_the_log_has_what_the_checkpoint_counts_and_the_result_says_what_is_missing(partial, result, tmp_path):
    recovered = recover_result(partial)
    stored, folder = read_result(tmp_path / "out")
    assert folder == recovered.folder
    assert stored == recovered.result
    assert (stored.points, stored.summary) == (result.points, result.summary)
    assert (stored.status, stored.status_reason) == (
        "incomplete",
        "the run was killed, and recovered until its last checkpoint, 3 s into the window of load point 1 of 2",
    )
    assert stored.environment["recovered"]["checkpoint_at"] == "2026-11-24T05:00:00+00:00"
    assert list(recovered.lost) == stored.environment["recovered"]["lost"]
    assert "What came after the checkpoint of 2026-11-24T05:00:00+00:00" in recovered.lost[0]
    assert counts(folder) == {"p0.r0.service": [(3.0, 2), (3.0, 1)], "p0.r0.lost.service": [(1.0, 50), (3.0, 9), (6.0, 99), (3.0, 99)]}
    assert read_window_starts(folder) == {(0, 0): 2.0}


def test_a_folder_can_be_recovered_again_elsewhere_but_not_over_the_first(partial, tmp_path):
    first = recover_result(partial)
    with pytest.raises(ResultError, match="this exists already, perhaps because the run was recovered before; give another --out"):
        recover_result(partial)
    second = recover_result(partial, tmp_path / "again")
    assert second.result == first.result
    names = ("result.json", "latency.hlog", "checksums.sha256")
    assert [(second.folder / name).read_bytes() for name in names] == [(first.folder / name).read_bytes() for name in names]


def test_a_run_that_goes_on_is_left_alone(partial, tmp_path):
    with locked(tmp_path / "out"), pytest.raises(ResultError, match=r"its run still goes on \(process \d+ on .*\); wait for its end"):
        recover_result(partial)
    assert not (tmp_path / "out").exists()


def test_what_a_crash_cut_off_is_left_out(partial):
    with (partial / "intervals-p0.r0-0.spool").open("a") as spool:
        spool.write("2 Tag=p0.r0.service,3.000,1.0")
    with (partial / "intervals-p0.r0-2.spool").open("a") as spool:
        spool.write("7 Tag=p0.r0.service,8.000,1.0")
    with (partial / "latency.hlog").open("a") as log:
        log.write("Tag=p0.r1.serv")
    assert recover_result(partial).lost[0].startswith("What came after")


def test_a_log_that_did_not_reach_the_disk_is_left_out_and_the_figures_stay(partial, result, tmp_path):
    (partial / "intervals-p0.r0-1.spool").write_bytes(b"")
    recovered = recover_result(partial)
    assert recovered.lost[-1].startswith("latency.hlog: it was not on the disk as far as the figures go")
    assert recovered.result.points == result.points
    assert read_result(tmp_path / "out")[0] == recovered.result
    assert not (tmp_path / "out" / "latency.hlog").exists()


def test_without_a_checkpoint_the_complete_load_points_are_recovered(partial, result, tmp_path):
    (partial / "checkpoint.json").unlink()
    with pytest.raises(ResultError, match="no load point was complete and there is no checkpoint, so there is nothing to recover"):
        recover_result(partial)
    writer = ResultWriter(tmp_path / "other", 0.0)
    spool = writer.interval_spool("p0.r0", PointLines("p0.r0", 0))
    spool.add(0, S, interval(1, 3))
    writer.log_spooled(spool, 0)
    under_way = writer.interval_spool("p1.r0", PointLines("p1.r0", 0))
    under_way.add(0, S, interval(5))
    under_way.close()
    writer.save(result)
    with (writer.partial / "telemetry.csv").open("w") as telemetry:
        row = '0,http,"c, 1",name,"{""a"": ""b""}",s,1.0,0.5,7.0\n'
        telemetry.write("point,repetition,protocol,load,name,labels,unit,time_s,window_s,value\n")
        telemetry.write(f"0,{row}1,{row}0,0,http,tr")
    left = writer.abort()
    assert left is not None
    recovered = recover_result(left)
    assert counts(recovered.folder) == {"p0.r0.service": [(2.0, 3)]}
    assert recovered.result.status_reason == "the run was killed, and recovered until its last complete load point, number 1"
    assert (recovered.folder / "telemetry.csv").read_text().splitlines()[1:] == ["0," + row.strip()]


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"schema": "perfkit.checkpoint/1"}'])
def test_a_damaged_checkpoint_is_named_unless_complete_load_points_can_stand_in(partial, damage):
    (partial / "checkpoint.json").write_bytes(damage)
    with pytest.raises(ResultError, match=r"nothing to recover \(.*checkpoint\.json: "):
        recover_result(partial)


def test_a_checkpoint_names_no_file_elsewhere(partial):
    file = partial / "checkpoint.json"
    for name in ("intervals-p0.r0-0.spool", "latency.hlog"):
        changed = file.read_text().replace(f'"{name}"', '"../secret"')
        assert changed != file.read_text()
        (partial / "checkpoint.json.2").write_text(changed)
        kept = file.read_text()
        file.write_text(changed)
        with pytest.raises(ResultError, match="nothing to recover"):
            recover_result(partial)
        file.write_text(kept)


def test_what_is_no_folder_of_a_killed_run_is_refused(tmp_path, partial):
    for path, message in ((tmp_path / "none.partial", "there is no such folder"), (tmp_path, "whose name ends with .partial")):
        with pytest.raises(ResultError, match=message):
            recover_result(path)
    complete = recover_result(partial).folder
    with pytest.raises(ResultError, match="this is a complete result; there is nothing to recover"):
        recover_result(complete)


def test_a_large_log_continues_in_further_files_which_the_librarys_reader_reads_one_by_one(tmp_path, result):
    writer = ResultWriter(tmp_path / "out", STARTED_AT_S, largest_log_bytes=600)
    spool = writer.interval_spool("p0.r0", PointLines("p0.r0", 0))
    for index in range(9):
        spool.add(0, S, interval(index, index + 1))
    writer.log_spooled(spool, 0)
    writer.save(result)
    folder = writer.commit()
    files = log_files(folder)
    assert len(files) > 2
    assert [file.name for file in files[:3]] == ["latency.hlog", "latency-2.hlog", "latency-3.hlog"]
    assert all(file.stat().st_size <= 600 for file in files)
    assert counts(folder) == {"p0.r0.service": [(1.0 + index, index + 1) for index in range(9)]}
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
        counts(folder)
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


def test_of_a_lost_worker_what_its_checkpoints_count_stays_and_the_rest_is_kept_apart(tmp_path):
    spool = IntervalSpool(tmp_path, "p0.r0", PointLines("p0.r0", 0))
    for second, values in ((1, 7), (4, 5)):
        spool.add(0, S, interval(second, values))
    spool.mark(0, 4 * S)  # 3 s after the window's start
    spool.count_until(4 * S)
    spool.add(0, S, interval(2, 3))  # late answers, which only the next checkpoint counts
    spool.mark(0, 7 * S)
    spool.lose(0)
    spool.count_until(7 * S)  # of the other workers
    assert spool.counted_sizes()["intervals-p0.r0-0.lost.spool"] == -1
    (tmp_path / "latency.hlog").write_text("".join(spool.settled(0)))
    assert counts(tmp_path) == {"p0.r0.service": [(2.0, 7)], "p0.r0.lost.service": [(5.0, 5), (3.0, 3)]}
    spool.remove()
    assert [file.name for file in tmp_path.iterdir()] == ["latency.hlog"]


def test_when_one_of_several_workers_that_answer_as_one_is_lost_what_no_checkpoint_counts_is_replaced(tmp_path):
    spool = IntervalSpool(tmp_path, "p0.r0", PointLines("p0.r0", 0))
    for second, values in ((1, 7), (4, 5)):
        spool.add(0, S, interval(second, values))
    spool.mark(0, 4 * S)  # 3 s after the window's start; other machines have not reached it
    spool.add(0, S, interval(5, 9))
    spool.replace(0, S, [interval(4, 2), interval(5, 6)], [interval(4, 3), interval(5, 3)])
    spool.count_until(4 * S)
    (size,) = (size for name, size in spool.counted_sizes().items() if "lost" not in name)
    counted = "".join(spooled_lines(tmp_path / "intervals-p0.r0-0.spool", 0, 3, size=size))
    (tmp_path / "latency.hlog").write_text(counted)
    assert counts(tmp_path) == {"p0.r0.service": [(2.0, 7)]}
    (tmp_path / "latency.hlog").write_text("".join(spool.settled(0)))
    assert counts(tmp_path) == {"p0.r0.service": [(2.0, 7), (5.0, 2), (6.0, 6)], "p0.r0.lost.service": [(5.0, 3), (6.0, 3)]}
    spool.remove()
