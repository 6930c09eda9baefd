"""The reports in a result folder, and what the terminal shows of a run."""

import pytest

from perfkit.errors import ResultError
from perfkit.report.run import describe_point, print_summary, print_warnings, write_reports
from perfkit.result.model import SloJudgement
from perfkit.units import format_duration_ns, format_rate_per_s


def test_reports_are_written_beside_the_result_without_temporary_files(synthetic):
    maker = synthetic(protocols=("http",), concurrencies=(1, 2))
    maker.write()
    written = write_reports(maker.folder)
    names = {"plots/load.svg", "plots/percentiles.svg", "plots/timeline.svg", "report.md", "report.html"}
    assert {str(file.relative_to(maker.folder)) for file in written} == names
    found = {str(file.relative_to(maker.folder)) for file in maker.folder.rglob("*") if file.is_file()}
    assert found == names | {"result.json", "latency.hlog", "checksums.sha256"}


def test_writing_again_from_the_path_of_the_result_file_gives_the_same_bytes(synthetic):
    maker = synthetic(failed=2, protocols=("http",), concurrencies=(1, 2))
    maker.write()
    first = {file: file.read_bytes() for file in write_reports(maker.folder)}
    assert {file: file.read_bytes() for file in write_reports(maker.folder / "result.json")} == first


@pytest.mark.parametrize("options", [{"samples": 0}, {"samples": 1, "seconds": 1}])
def test_a_result_with_hardly_any_samples_has_a_report(synthetic, options):
    maker = synthetic(status="interrupted", **options)
    maker.write()
    assert maker.folder / "report.html" in write_reports(maker.folder)


def test_a_folder_that_cannot_be_written_and_a_missing_log_are_reported(synthetic):
    maker = synthetic(concurrencies=(1,))
    maker.write()
    (maker.folder / "plots").write_text("in the way")
    with pytest.raises(ResultError, match="the report cannot be written there"):
        write_reports(maker.folder)
    (maker.folder / "latency.hlog").unlink()
    with pytest.raises(ResultError, match=r"latency\.hlog: cannot be read"):
        write_reports(maker.folder)


def test_the_terminal_shows_the_load_points(synthetic, capsys):
    result = synthetic(protocols=("http",), concurrencies=(1, 4)).write()
    print_summary(result)
    heading, _, first, second, note = capsys.readouterr().out.strip("\n").splitlines()
    assert heading.split() == [
        "protocol", "concurrency", "throughput", "inferences", "p50", "p90", "p95", "p99", "p99.9", "max", "errors", "samples",
    ]  # fmt: skip
    assert [line.split()[:2] for line in (first, second)] == [["http", "1"], ["http", "4"]]
    assert first.split()[-2:] == ["0", f"{result.summary[0].service_time_ns.count:,}"]
    assert note == "service times, finished − started; – marks percentiles with too few samples"


def test_the_terminal_shows_warnings_slo_and_status(synthetic, capsys):
    result = synthetic(protocols=("http",), concurrencies=(1,), status="interrupted", status_reason="by a signal").write()
    judged = result.summary[0].model_copy(update={"slo": SloJudgement(verdict="violated", reason="p99 is too long.")})
    print_warnings(result.model_copy(update={"summary": (judged,)}))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("warning (http, concurrency 1) Too few samples for p99")
    assert lines[-2:] == ["SLO violated (http, concurrency 1) p99 is too long.", "status: interrupted: by a signal"]


def test_a_finished_load_point_is_described_in_one_line(synthetic):
    (point,) = synthetic(protocols=("grpc",), concurrencies=(2,), failed=10).write().summary
    times = point.service_time_ns
    assert describe_point(point) == (
        f"grpc, concurrency 2: {format_rate_per_s(point.throughput_per_s)}, p50 {format_duration_ns(times.p50)}, "
        f"p99 {format_duration_ns(times.p99)}, {point.error_rate:.2%} failed"
    )
