"""What the terminal shows after a run: the answer, tables that fit, warnings, SLO and status."""

import dataclasses

import pytest
from rich.text import Text

from perfkit.errors import MeasurementWarning
from perfkit.figures.resources import ServerFigures, ServerTimeFigures
from perfkit.report.answer import _times
from perfkit.report.live import describe_point
from perfkit.report.table import Column, Table, format_error_rate
from perfkit.report.terminal import fitted_text, print_status, print_warnings
from perfkit.report.terminal_summary import explanation_text, print_summary
from perfkit.result.point_parts import SloJudgement
from perfkit.units import format_duration_ns, format_rate_per_s

SERVER = ServerFigures(
    requests=123_456, failed=0, success_ns=40e6, queue_ns=1.25e6, compute_input_ns=1e6, compute_infer_ns=38e6, compute_output_ns=2e6,
    executions=600, mean_batch=2.0, client_requests=1201, client_mean_ns=41.5e6,
)  # fmt: skip


@pytest.fixture
def shown(capsys, monkeypatch):
    """Prints a result's summary at a width, through a pipe or on a terminal; returns its lines."""

    def show(result, columns="", *, is_terminal=False):
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal, raising=False)
        print_summary(result)
        return capsys.readouterr().out.splitlines()

    return show


def with_server(result):
    return result.model_copy(update={"summary": tuple(point.model_copy(update={"server": SERVER}) for point in result.summary)})


def test_a_column_of_the_server_is_there_if_its_page_of_metrics_has_it(synthetic, shown):
    times = (ServerTimeFigures("inference", "request_predict_seconds", 1200, 38e6, {"p50": (25e6, 50e6)}),)
    result = synthetic(protocols=("http",), concurrencies=(1,)).write()
    point = result.summary[0].model_copy(update={"server": ServerFigures.of_page(times, 1201, 41.5e6)})
    lines = shown(result.model_copy(update={"summary": (point,)}), 160)
    (heading,) = [line for line in lines if "concurrency" in line and "throughput" in line]
    assert "server infer" in heading
    assert "server queue" not in heading, "it is not on the page"
    assert any(line.split()[:2] == ["http", "1"] and line.count("38.0 ms") for line in lines)


def test_the_summary_begins_with_the_answer_and_shows_each_load_point(synthetic, shown):
    result = synthetic(protocols=("http",), concurrencies=(1, 4)).write()
    _, answer, _, heading, _, first, second, note = shown(result, 140)
    assert answer.startswith("Best ")
    assert answer.endswith("; these windows are too short to tell whether throughput still rises there.")
    assert heading.split() == [
        "protocol", "concurrency", "throughput", "inferences", "p50", "p90", "p95", "p99", "p99.9", "max", "errors", "samples",
    ]  # fmt: skip
    assert [line.split()[:2] for line in (first, second)] == [["http", "1"], ["http", "4"]]
    assert first.split()[-2:] == ["0", f"{result.summary[0].service_time_ns.count:,}"]
    assert note == "service times, finished − started; –: too few samples"


@pytest.mark.parametrize("protocols", [("http",), ("http", "grpc")])
def test_at_80_columns_columns_give_way_and_no_figure_is_cut(synthetic, shown, protocols):
    result = with_server(synthetic(protocols=protocols, samples=120_000 // 50, service_ms=12_345.0, cpu_share=0.95, seconds=1).write())
    lines = shown(result, 80, is_terminal=True)
    tables = [Text.from_ansi(line).plain for line in lines]
    assert max(map(len, tables)) <= 80
    assert any(line.startswith("left out at 80 columns: ") for line in tables)
    whole = "\n".join(tables)
    assert "…" not in whole
    for point, row in zip(result.summary, (line for line in tables if "NOT VALID" in line), strict=True):
        figures = (format_rate_per_s(point.throughput_per_s), *(format_duration_ns(getattr(point.times, name)) for name in ("p50", "p99")))
        assert all(figure in row for figure in figures)
    assert whole.count("1.25 ms") == len(result.summary), "the server's queue"


def test_through_a_pipe_an_invalid_row_says_so_and_a_sentence_stays_on_one_line(synthetic, shown):
    result = synthetic(protocols=("http",), cpu_share=0.95).write()
    lines = shown(result)
    assert lines[1] == (
        "No load point is valid, because of generator_bound: the figures are not those of the target, and the warnings say why."
    )
    assert sum("NOT VALID" in line for line in lines) == len(result.summary)


def test_a_sound_result_has_no_column_of_states(synthetic, shown):
    assert "state" not in "\n".join(shown(synthetic(protocols=("http",)).write(), 140))


def test_only_columns_that_may_give_way_do_and_the_widest_row_is_kept_whole():
    table = Table("t", "T", (Column("a", "a"), Column("b", "b"), Column("c", "c")), (("x" * 30, "y" * 30, "z" * 30),), "A note.")
    assert fitted_text(table, 100, ("b", "c")).splitlines()[-1] == "A note."
    lines = fitted_text(table, 70, ("missing", "b", "c")).splitlines()
    assert (lines[2].split(), lines[-1]) == (["x" * 30, "z" * 30], "left out at 70 columns: b; the report has them")
    assert fitted_text(dataclasses.replace(table, note=""), 10, ("b", "c")).splitlines()[2].split() == ["x" * 30]


def test_the_terminal_shows_warnings_slo_and_status(synthetic, capsys):
    result = synthetic(protocols=("http",), concurrencies=(1,), status="interrupted", status_reason="by a signal").write()
    judged = result.summary[0].model_copy(update={"slo": SloJudgement(verdict="violated", reason="p99 is too long.")})
    result = result.model_copy(update={"summary": (judged,)})
    print_warnings(result)
    print_status(result, 130)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "1 note (few_samples; the report and perfkit explain have it)"
    assert lines[-2:] == [
        "SLO violated (http, concurrency 1) p99 is too long.",
        "status: interrupted: by a signal (1 load point, SLO violated; exit code 130)",
    ]


def test_the_status_counts_the_load_points_that_are_not_valid(synthetic, capsys):
    print_status(
        synthetic(protocols=("http",), concurrencies=(1, 2), cpu_share=0.95, status="invalid", status_reason="see there").write(), 5
    )
    assert capsys.readouterr().err == "status: invalid: see there (2 load points, 2 of them NOT VALID; exit code 5)\n"


def test_a_finished_load_point_is_described_in_one_line(synthetic):
    (point,) = synthetic(protocols=("grpc",), concurrencies=(2,), failed=10).write().summary
    times = point.service_time_ns
    assert describe_point(point) == (
        f"grpc, concurrency 2: {format_rate_per_s(point.throughput_per_s)}, p50 {format_duration_ns(times.p50)}, "
        f"p99 {format_duration_ns(times.p99)}, {point.error_rate:.2%} failed"
    )


def test_the_line_of_a_load_point_and_the_headline_have_the_same_share_of_failures(synthetic):
    (point,) = synthetic(protocols=("grpc",), concurrencies=(2,), failed=10).write().summary
    requests = point.requests.model_copy(update={"outcomes": {**point.requests.outcomes, "invalid_output": 5}})
    point = point.model_copy(update={"requests": requests, "checked": 20, "wrong_answer_rate": 0.25})
    assert f"{point.failed_share.estimate:.2%} failed" in describe_point(point)
    assert f", {format_error_rate(point.failed_share.estimate)} of the requests failed (" in _times(point)
    assert point.failed_share.estimate > 0.25 > point.error_rate


def test_warnings_of_one_kind_are_one_line_with_their_load_points_and_the_remedy(synthetic, capsys):
    busy = MeasurementWarning("busy_machine", "This machine was busy.")
    result = synthetic(protocols=("http",), seconds=10, cpu_share=0.95, warnings=(busy,)).write()
    print_warnings(result)
    printed = " ".join(capsys.readouterr().err.split())
    assert [printed.count(f"warning {code} ") for code in ("busy_machine", "generator_bound")] == [1, 1]
    assert printed.index("busy_machine") < printed.index("generator_bound"), "its cause comes before the generator"
    assert printed.endswith("1 note (few_samples; the report and perfkit explain have it)")
    told = " ".join(explanation_text(result).split())
    assert "few_samples (http, concurrency 1) Too few samples for p99: at least 662 are needed" in told
    assert told.count("few_samples (") == 2, "one for the p99, one for the p99.9"
    assert "Remedy: --set measure.duration=TIME, --set measure.repetitions=N." in told


def test_another_process_is_a_note_unless_it_may_have_spoiled_a_load_point(synthetic, capsys):
    busy = MeasurementWarning("busy_machine", "This machine was busy.")
    print_warnings(synthetic(protocols=("http",), samples=1000, seconds=10, warnings=(busy,)).write())
    assert capsys.readouterr().err.startswith("2 notes (busy_machine, few_samples; the report and perfkit explain have them)")


def test_a_terminal_gets_two_warnings_of_three_lines_and_the_names_of_the_others(synthetic, capsys, monkeypatch):
    words = "The load generator stood still 85 times, for 2.02 s in all, " + "most likely other processes, " * 20
    warnings = tuple(
        MeasurementWarning(code, f"{words}. More of it.") for code in ("generator_stopped", "late_starts", "stall", "overloaded")
    )
    result = synthetic(protocols=("http",), concurrencies=(1, 2), warnings=warnings).write()
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    print_warnings(result)
    lines = [Text.from_ansi(line).plain for line in capsys.readouterr().err.splitlines()]
    assert [line.split()[:2] for line in lines if line.startswith("warning")] == [
        ["warning", "generator_stopped"],
        ["warning", "late_starts"],
    ]
    assert lines[-2].startswith("2 more warnings (overloaded, stall; the report and perfkit explain have them)")
    assert lines[-1].startswith("1 note (few_samples")
    assert len(lines) == 8
    assert max(map(len, lines)) <= 80
    told = " ".join(" ".join(lines).split())
    assert told.count("…") == 2
    assert "Remedy: --set measure.cpus=LIST, --set measure.duration=TIME." in told
    assert "More of it" not in told
