"""A command from its first load to its files and exit code, with scripted measurements."""

import pytest

from perfkit.errors import PerfkitError, TargetError
from perfkit.perf_analyzer.options import LoadRange, Options
from perfkit.perf_analyzer.profile import ExitCode, Interrupted, Output, profile
from perfkit.result.model import Failure
from tests.perf_analyzer.measured import measured_load

STEADY, UNSTEADY = (100.0, 101.0, 102.0), (100.0, 150.0, 200.0)
LATENCIES_NS = (1e6, 1e6, 1e6)


class Script:
    """Answers each load with what a function of it and of the number of the attempt says."""

    def __init__(self, answer):
        self.answer, self.measured, self.warm_ups = answer, [], []

    def warm_up(self, value):
        self.warm_ups.append(value)

    def measure(self, value):
        self.measured.append(value)
        answer = self.answer(value, self.measured.count(value))
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, list) else [answer]


def load(value, windows=STEADY, latency_ns=1e6, **changes):
    return measured_load(
        value, stabilizing_latency_ns=latency_ns, window_inferences_per_s=windows, window_latencies_ns=LATENCIES_NS, **changes
    )  # fmt: skip


def run(options, answer):
    """The exit code, stdout, stderr and the script."""
    lines, complaints, script = list[str](), list[str](), Script(answer)
    options = options if isinstance(options, list) else [options]
    code = profile(options, script, Output(lines.append, complaints.append))
    return code, lines, complaints, script


def test_a_sweep_reports_its_loads_and_writes_the_csv_file(tmp_path):
    options = Options("m", load_range=LoadRange(1, 3, 1), csv_file=str(tmp_path / "out.csv"))
    code, lines, complaints, _ = run(options, lambda value, _: load(value, inferences_per_s=100.0 * value))
    assert (code, complaints) == (ExitCode.DONE, [])
    assert [line for line in lines if line.startswith("Concurrency")] == [
        "Concurrency: 1, throughput: 100 infer/sec, latency 1000 usec",
        "Concurrency: 2, throughput: 200 infer/sec, latency 1000 usec",
        "Concurrency: 3, throughput: 300 infer/sec, latency 1000 usec",
    ]
    assert [row.split(",")[0] for row in (tmp_path / "out.csv").read_text().splitlines()] == ["Concurrency", "1", "2", "3"]


def test_a_load_above_the_threshold_ends_the_sweep_and_is_not_reported():
    options = Options("m", load_range=LoadRange(1, 5, 1), latency_threshold_ms=3)
    code, lines, complaints, script = run(options, lambda value, _: load(value, latency_ns=value * 1e6))
    assert code is ExitCode.DONE
    assert script.measured == [1, 2, 3]
    assert complaints == ["Measured latency went over the set limit of 3 msec. "]
    assert sum(line == "  Client: " for line in lines) == 2


@pytest.mark.parametrize(("mode", "option"), [("time_windows", "--measurement-interval"), ("count_windows", "--measurement-request-count")])
def test_a_single_load_that_never_settles_is_exit_code_2(mode, option):
    options = Options("m", measurement_mode=mode)
    code, lines, complaints, script = run(options, lambda value, _: load(value, UNSTEADY))
    assert code is ExitCode.UNSTABLE
    assert script.measured == [1, 1, 1]  # three windows each, of at most ten
    assert complaints == [
        f"Failed to obtain stable measurement within 10 measurement windows for concurrency 1. Please try to increase the {option}.",
        "Failed to obtain stable measurement.",
    ]
    assert "Inferences/Second vs. Client Average Batch Latency" not in lines


def test_a_load_that_settles_later_is_reported():
    code, _, complaints, script = run(Options("m"), lambda value, attempt: load(value, STEADY if attempt == 2 else UNSTEADY))
    assert (code, complaints, script.measured) == (ExitCode.DONE, [], [1, 1])


def test_the_second_load_of_a_sweep_that_never_settles_ends_it_with_exit_code_0():
    options = Options("m", load_range=LoadRange(1, 4, 1))
    code, _, _, script = run(options, lambda value, _: load(value, STEADY if value == 1 else UNSTEADY))
    assert code is ExitCode.DONE
    assert script.measured == [1, 2, 2, 2]


def test_calls_without_waiting_are_judged_by_throughput_alone():
    unsteady_latency = {"window_latencies_ns": (1e6, 2e6, 3e6)}

    def answer(value, _):
        return measured_load(value, window_inferences_per_s=STEADY, **unsteady_latency)

    assert run(Options("m"), answer)[0] is ExitCode.UNSTABLE
    assert run(Options("m", is_async=True), answer)[0] is ExitCode.DONE


def test_failed_requests_end_the_command_with_their_message_and_keep_earlier_loads():
    failure = Failure(outcome="rejected", status="500", message="out of memory", cause=None, count=3)

    def answer(value, _):
        return load(value) if value == 1 else load(value, failed=3, requests=97, failures=(failure,))

    code, lines, complaints, _ = run(Options("m", load_range=LoadRange(1, 4, 1)), answer)
    assert code is ExitCode.FAILED
    assert complaints[0].endswith("3 of 100 requests failed, most of them with: out of memory")
    assert lines[-1].startswith("Concurrency: 1, throughput")


def test_no_answer_within_a_window_is_exit_code_3():
    code, _, complaints, _ = run(Options("m"), lambda value, _: load(value, requests=0))
    assert code is ExitCode.NO_REQUESTS
    assert complaints == ["No valid requests recorded within time interval. Please use a larger time window."]


def test_an_unreachable_server_is_exit_code_99():
    code, lines, complaints, _ = run(Options("m"), lambda *_: TargetError("nobody listens"))
    assert (code, complaints) == (ExitCode.FAILED, ["error: nobody listens"])
    assert lines[-1] == "Request concurrency: 1"


def test_an_interrupt_reports_what_is_measured():
    options = Options("m", load_range=LoadRange(1, 4, 1))
    code, lines, _, _ = run(options, lambda value, _: load(value) if value == 1 else Interrupted())
    assert code is ExitCode.DONE
    assert "Waiting for in-flight inferences to complete." in lines
    assert lines[-1].startswith("Concurrency: 1, throughput")


def test_warm_up_requests_precede_each_load():
    options = Options("m", load_range=LoadRange(1, 2, 1), warmup_request_count=20)
    assert run(options, lambda value, _: load(value))[3].warm_ups == [1, 2]
    others = [Options("a"), Options("b", warmup_request_count=20)]
    assert run(others, lambda value, _: [load(value)] * 2)[3].warm_ups == [1]


def test_a_number_of_requests_has_one_window_which_is_stable_by_definition():
    code, lines, _, script = run(Options("m", request_count=20), lambda value, _: load(value, (100.0,)))
    assert (code, script.measured) == (ExitCode.DONE, [1])
    assert "  Sending 20 benchmark requests" in lines


def test_models_that_run_at_once_are_reported_one_after_the_other(tmp_path):
    options = [Options(name, csv_file=str(tmp_path / f"{name}.csv"), is_mpi=True) for name in ("one", "two")]
    code, lines, _, script = run(options, lambda value, _: [load(value, inferences_per_s=10.0), load(5, inferences_per_s=20.0)])
    assert (code, script.measured) == (ExitCode.DONE, [1])
    assert [line for line in lines if "Throughput" in line] == ["    Throughput: 10 infer/sec", "    Throughput: 20 infer/sec"]
    assert (tmp_path / "two.csv").read_text().splitlines()[1].startswith("5,20,")
    assert [line for line in lines if "oncurrency" in line] == [
        "Request concurrency: 1",
        "Request concurrency: 5",
        "Concurrency: 1, throughput: 10 infer/sec, latency 1000 usec",
        "Concurrency: 5, throughput: 20 infer/sec, latency 1000 usec",
    ]


@pytest.mark.parametrize(("place", "reason"), [("none/out.csv", "No such file or directory"), ("", "Is a directory")])
def test_a_csv_file_that_cannot_be_written_is_refused_before_the_load(tmp_path, place, reason):
    path = tmp_path / place
    script = Script(lambda value, _: load(value))
    with pytest.raises(PerfkitError, match=f"^-f {path}: it cannot be written: {reason}$"):
        profile([Options("m", csv_file=str(path))], script, Output(print, print))
    assert script.measured == []


def test_the_check_of_the_csv_file_leaves_nothing_behind(tmp_path):
    run(Options("m", csv_file=str(tmp_path / "new.csv")), lambda *_: TargetError("nobody listens"))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "old.csv").write_text("earlier")
    run(Options("m", csv_file=str(tmp_path / "old.csv")), lambda *_: TargetError("nobody listens"))
    assert (tmp_path / "old.csv").read_text() == "earlier"


def test_csv_files_that_can_no_longer_be_written_are_exit_code_99_and_the_others_are_written(tmp_path):
    (tmp_path / "gone").mkdir()

    def answer(value, _):
        (tmp_path / "gone").rmdir()
        return [load(value), load(value)]

    options = [Options("m", csv_file=str(tmp_path / name), is_mpi=True) for name in ("gone/one.csv", "two.csv")]
    code, _, complaints, _ = run(options, answer)
    assert code is ExitCode.FAILED
    assert complaints == [f"error: -f {tmp_path}/gone/one.csv: it cannot be written: No such file or directory"]
    assert (tmp_path / "two.csv").exists()
