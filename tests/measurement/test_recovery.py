"""What a killed run, or a power cut, leaves on the disk, and the result that is made of it."""

import asyncio
import dataclasses
import pathlib
import types

import pytest

import perfkit
from perfkit.clock import ManualClock
from perfkit.errors import MeasurementWarning, ResultError
from perfkit.load.loop import Ending
from perfkit.machine.readings import BusyShares
from perfkit.measurement.point_log import PointHead, PointLog, read_point_log
from perfkit.measurement.point_measurement import ProbedFacts
from perfkit.measurement.recovery import recover_result
from perfkit.measurement.run_result import RunResult
from perfkit.recorder.recorder import Recorder
from perfkit.result.file import ResultWriter, read_result
from perfkit.result.interval_log import read_intervals, read_window_starts
from perfkit.result.output_folder import locked
from perfkit.result.telemetry_file import read_telemetry
from perfkit.scenario.file import read_document
from perfkit.transport.base import ConnectionCounts, Outcome, Reply
from perfkit.workers.messages import Piece
from perfkit.workers.point_recording import PointRecording, WorkloadRecording

MS, S = 1_000_000, 1_000_000_000
STARTED_AT_S = 1_767_323_045.678
SCENARIO = {
    "name": "killed",
    "target": {"model": "simple", "url": "http://127.0.0.1:8000"},
    "load": {"closed": {"concurrency": [1, 2]}},
    "measure": {"warmup": "1s", "duration": "1h", "repetitions": 1},
    "slo": {"p99": "10s"},
}
WINDOW_START = 2 * S
# answers in each second of the window of the first worker, of the second, and of one that is lost after three seconds
ANSWERS = ((2, 3, 4, 5), (1, 1, 1, 1, 1, 1), (7, 7, 7))


def pieces(counts):
    """A worker's piece of each second."""
    recorder = Recorder(window_start_ns=WINDOW_START, window_end_ns=3600 * S)
    for second, count in enumerate(counts, 1):
        for number in range(count):
            started_ns = WINDOW_START + (second - 1) * S + number * MS
            recorder.add(Reply(Outcome.OK, started_ns, started_ns + 10 * MS))
        at_ns = WINDOW_START + second * S
        own = WorkloadRecording(recorder.take_before(at_ns), ConnectionCounts(opened=second))
        yield Piece(at_ns, PointRecording((own,), S, Ending(at_ns), BusyShares(0.25)))


def begin(folder, document=SCENARIO, version=perfkit.__version__):
    """The folder of a run that has begun its first load point: its writer, and the log of the point."""
    loaded = read_document(document)
    writer = ResultWriter(folder, STARTED_AT_S)
    result = RunResult(loaded, loaded.by_workload(), {"generator": {}}, is_search=False).document(None, {})
    writer.begin(result)
    file, log_bytes, telemetry_bytes = writer.begin_point(0)
    warnings = (MeasurementWarning("shared_cpus", "They share CPUs."),)
    head = PointHead(version, str(folder.parent), 0, log_bytes, telemetry_bytes, MS, 3, warnings, (ProbedFacts(batch_size=2),))
    return writer, PointLog(file, head, ManualClock(0), 3600 * S)


@pytest.fixture
def killed(tmp_path):
    """The folder of a run that was killed while three workers measured the first of two load points."""
    writer, log = begin(tmp_path / "out")
    log.expect(len(ANSWERS))
    for worker, counts in enumerate(ANSWERS):
        for piece in pieces(counts):
            log.add(worker, piece)
    log.lose(2, "worker 3 of 3 is gone")
    asyncio.run(log.aclose())
    assert log.failure is None
    return types.SimpleNamespace(partial=writer.abort(), out=tmp_path / "out", log=log.file)


def logged(folder):
    found = dict[str, dict[float, int]]()
    for tag, start_s, times in read_intervals(folder):
        found.setdefault(tag, {})[start_s] = times.count
    return found


def test_the_result_has_what_all_workers_that_were_left_had_sent(killed):
    recovered = recover_result(killed.partial)
    stored, folder = read_result(killed.out)
    assert (folder, stored) == (recovered.folder, recovered.result)
    (point,) = stored.points
    sent = sum(sum(counts[:4]) for counts in ANSWERS)
    assert (point.duration_s, point.requests.sent, point.times.count) == (4.0, sent, sent)
    assert point.throughput_series_per_s == (2 + 1 + 7, 3 + 1 + 7, 4 + 1 + 7, 5 + 1)
    assert point.inferences_per_s == 2 * point.throughput_per_s == 2 * sent / 4
    # the newest count of connections of each worker
    assert (point.connections.opened, point.generator.workers, point.generator.cpu_share) == (4 + 6 + 3, 3, 0.25)
    codes = {warning.code: warning.message for warning in point.warnings}
    assert (codes["worker_lost"], codes["shared_cpus"], point.valid) == ("worker 3 of 3 is gone.", "They share CPUs.", False)
    assert (stored.status, stored.status_reason) == (
        "incomplete", "the run was killed, and recovered until 4 s into the window of load point 1 of 2 (http, concurrency 1)"
    )  # fmt: skip
    assert list(recovered.lost) == stored.environment["recovered"]["lost"]
    assert logged(folder) == {"p0.r0.service": {2.0: 10, 3.0: 11, 4.0: 12, 5.0: 6}}
    assert read_window_starts(folder) == {(0, 0): 2.0}


def test_a_folder_can_be_recovered_again_elsewhere_but_not_over_the_first(killed, tmp_path):
    first = recover_result(killed.partial)
    with pytest.raises(ResultError, match="this exists already, perhaps because the run was recovered before; give another --out"):
        recover_result(killed.partial)
    second = recover_result(killed.partial, tmp_path / "again")
    assert second.result == first.result
    names = ("result.json", "latency.hlog", "checksums.sha256")
    assert [(second.folder / name).read_bytes() for name in names] == [(first.folder / name).read_bytes() for name in names]


def test_what_the_files_already_had_of_the_load_point_stands_in_the_result_once(killed, tmp_path):
    first = recover_result(killed.partial)
    # killed after the load point's intervals and telemetry had been written, and before the load point was stored
    (killed.partial / "latency.hlog").write_bytes((first.folder / "latency.hlog").read_bytes())
    (killed.partial / "telemetry.csv").write_text("time_s,window_s\n3.0,1.0\n")
    second = recover_result(killed.partial, tmp_path / "again")
    assert (second.folder / "latency.hlog").read_bytes() == (first.folder / "latency.hlog").read_bytes()
    assert read_telemetry(second.folder) == {}


def test_a_run_that_goes_on_is_left_alone(killed):
    with locked(killed.out), pytest.raises(ResultError, match=r"its run still goes on \(process \d+ on .*\); wait for its end"):
        recover_result(killed.partial)
    assert not killed.out.exists()


def test_what_a_crash_cut_off_or_damaged_at_the_end_is_left_out(killed, tmp_path):
    whole = killed.log.read_bytes()
    entries = [0]
    while entries[-1] < len(whole):
        entries.append(entries[-1] + 8 + int.from_bytes(whole[entries[-1] : entries[-1] + 4], "big"))
    # the second worker is the last but one to come, and two of its seconds are beyond those of the first
    assert len(entries) == 1 + 1 + sum(map(len, ANSWERS)) + 1
    for number, damaged in enumerate((whole[: entries[14] - 1], whole[: entries[14]], whole[: entries[12] + 4] + b"\0" * 99)):
        killed.log.write_bytes(damaged)
        recovered = recover_result(killed.partial, tmp_path / str(number))
        (point,) = recovered.result.points
        seconds = (2, 3, 1)[number]  # of the third worker, whose loss is not known
        assert (point.duration_s, point.requests.sent) == (seconds, sum(sum(counts[:seconds]) for counts in ANSWERS))
    for few in (whole[: entries[1]], whole[: entries[1] + 3], whole[: entries[5]]):  # the other workers have sent nothing
        killed.log.write_bytes(few)
        with pytest.raises(ResultError, match="no second of the first load point was complete"):
            recover_result(killed.partial, tmp_path / "few")


def test_the_log_of_another_version_and_one_without_a_head_are_refused(tmp_path):
    writer, log = begin(tmp_path / "other", version="0.0.1")
    log.add(0, next(pieces((1,))))
    asyncio.run(log.aclose())
    with pytest.raises(ResultError, match=r"this is of perfkit 0\.0\.1; recover it with that version"):
        recover_result(writer.abort())
    for damage in (b"", b"\0\0\0\5{}{}{", log.file.read_bytes()[:9]):
        log.file.write_bytes(damage)
        with pytest.raises(ResultError, match="cannot be read by this version of perfkit"):
            recover_result(writer.partial)


def test_what_is_no_folder_of_a_killed_run_is_refused(tmp_path, killed):
    for path, message in ((tmp_path / "none.partial", "there is no such folder"), (tmp_path, "whose name ends with .partial")):
        with pytest.raises(ResultError, match=message):
            recover_result(path)
    complete = recover_result(killed.partial).folder
    with pytest.raises(ResultError, match="this is a complete result; there is nothing to recover"):
        recover_result(complete)
    (tmp_path / "empty.partial").mkdir()
    with pytest.raises(ResultError, match=r"there is nothing to recover: .*: no load point was begun"):
        recover_result(tmp_path / "empty.partial")


def test_a_full_disk_ends_the_log_and_not_the_load(tmp_path):
    folder = tmp_path / "out"
    writer, log = begin(folder)
    log.add(0, next(pieces((1,))))
    asyncio.run(log.aclose())
    full = pathlib.Path("/dev/full")
    if not full.exists():
        pytest.skip("needs /dev/full, a device that is always full")
    head = read_point_log(log.file)[0]
    log.file.unlink()
    log.file.symlink_to(full)
    on_full = PointLog(log.file, head, ManualClock(0), 3600 * S)
    on_full.add(0, next(pieces((1,))))
    asyncio.run(on_full.aclose())
    assert on_full.failure is not None
    writer.discard()


def test_a_load_point_whose_workers_have_all_ended_is_recovered_whole(tmp_path):
    writer, log = begin(tmp_path / "out")
    log.expect(1)
    first, second = pieces((3, 4))
    half = dataclasses.replace(second.point.workloads[0].recording, end_ns=WINDOW_START + 3 * S // 2)
    last = dataclasses.replace(second.point, workloads=(dataclasses.replace(second.point.workloads[0], recording=half),))
    log.add(0, first)
    log.add(0, Piece(last.end_ns, last, is_last=True))
    asyncio.run(log.aclose())
    (point,) = recover_result(writer.abort()).result.points
    assert (point.duration_s, point.requests.sent) == (1.5, 7)


def test_a_log_that_did_not_reach_the_disk_is_named_where_it_is_all_there_is(killed):
    killed.log.write_bytes(bytes(4096))
    with pytest.raises(ResultError, match="cannot be read by this version of perfkit"):
        recover_result(killed.partial)
