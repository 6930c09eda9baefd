"""A command from its first load to its files and exit code, with scripted measurements."""

import pytest

from perfkit.errors import PerfkitError, TargetError
from perfkit.perf_analyzer.options import LoadRange, Options
from perfkit.perf_analyzer.profile import ExitCode, Interrupted, Output, profile
from perfkit.perf_analyzer.server_calls import ModelTraits
from perfkit.perf_analyzer.windows import RunFigures
from perfkit.result.point_parts import Failure
from tests.perf_analyzer.measured import measured_window

PLAIN = ModelTraits()
STEADY, UNSTEADY = (100.0, 101.0, 102.0), (100.0, 150.0, 200.0)


class Script:
    """Answers each load with what a function of it and of the number of windows so far says, which is a list of windows for each model."""

    def __init__(self, answer, traits):
        self.answer, self.traits, self.measured, self.counts, self.warm_ups = answer, traits, [], [], []

    def ask_servers(self):
        return self.traits

    def warm_up(self, value):
        self.warm_ups.append(value)

    def measure(self, value, count):
        before = sum(number for one, number in zip(self.measured, self.counts, strict=True) if one == value)
        self.measured.append(value)
        self.counts.append(count)
        answer = self.answer(value, before)
        if isinstance(answer, Exception):
            raise answer
        models = answer if isinstance(answer, list) else [answer]
        return [of_model[:count] for of_model in models]


def load(rates=STEADY, latency_ns=1e6, **changes):
    """Windows with these throughputs, in one run."""
    run = RunFigures(**changes)
    return tuple(measured_window(rate, latency_ns, run) for rate in rates)


def run(options, answer, traits=PLAIN):
    """The exit code, stdout, stderr and the script."""
    options = options if isinstance(options, list) else [options]
    lines, complaints, script = list[str](), list[str](), Script(answer, [traits] * len(options))
    code = profile(options, script, Output(lines.append, complaints.append))
    return code, lines, complaints, script


def test_a_sweep_reports_its_loads_and_writes_the_csv_file(tmp_path):
    options = Options("m", load_range=LoadRange(1, 3, 1), csv_file=str(tmp_path / "out.csv"))
    code, lines, complaints, _ = run(options, lambda value, _: load((100.0 * value,) * 3))
    assert (code, complaints) == (ExitCode.DONE, [])
    assert [line for line in lines if line.startswith("Concurrency")] == [
        "Concurrency: 1, throughput: 100 infer/sec, latency 1000 usec",
        "Concurrency: 2, throughput: 200 infer/sec, latency 1000 usec",
        "Concurrency: 3, throughput: 300 infer/sec, latency 1000 usec",
    ]
    assert [row.split(",")[0] for row in (tmp_path / "out.csv").read_text().splitlines()] == ["Concurrency", "1", "2", "3"]


def test_a_load_above_the_threshold_ends_the_sweep_and_is_not_reported():
    options = Options("m", load_range=LoadRange(1, 5, 1), latency_threshold_ms=3)
    code, lines, complaints, script = run(options, lambda value, _: load(latency_ns=value * 1.001e6))
    assert code is ExitCode.DONE
    assert script.measured == [1, 2, 3]
    assert complaints == ["Measured latency went over the set limit of 3 msec. "]
    assert sum(line == "  Client: " for line in lines) == 2


@pytest.mark.parametrize(("mode", "option"), [("time_windows", "--measurement-interval"), ("count_windows", "--measurement-request-count")])
def test_a_single_load_that_never_settles_is_exit_code_2(mode, option):
    options = Options("m", measurement_mode=mode, is_verbose=True)
    code, lines, complaints, script = run(options, lambda _, before: load([100.0 * 1.5 ** (before + place) for place in range(3)]))
    assert code is ExitCode.UNSTABLE
    assert script.counts == [3, 1, 1, 1, 1, 1, 1, 1]
    assert [line.partition("]")[0] for line in lines if "Pass" in line] == [f"  Pass [{number}" for number in range(1, 11)]
    assert complaints == [
        f"Failed to obtain stable measurement within 10 measurement windows for concurrency 1. Please try to increase the {option}.",
        "Failed to obtain stable measurement.",
    ]
    assert "Inferences/Second vs. Client Average Batch Latency" not in lines


@pytest.mark.parametrize(("trials", "counts"), [(1, [1]), (2, [2]), (3, [3]), (4, [3, 1])])
def test_no_more_windows_are_measured_than_trials_and_fewer_than_three_are_never_stable(trials, counts):
    code, _, _, script = run(Options("m", max_trials=trials), lambda _, before: load(UNSTEADY if trials > 2 and not before else STEADY))
    assert (code, script.counts) == (ExitCode.UNSTABLE, counts)


def test_the_last_three_windows_are_judged_and_reported():
    rates = (400.0, 200.0, 100.0, 104.0, 108.0)
    code, lines, complaints, script = run(Options("m"), lambda _, before: load(rates[before:]))
    assert (code, complaints, script.counts) == (ExitCode.DONE, [], [3, 1, 1])
    assert "    Request count: 312" in lines
    assert "    Throughput: 104 infer/sec" in lines


def test_the_second_load_of_a_sweep_that_never_settles_ends_it_with_exit_code_0():
    options = Options("m", load_range=LoadRange(1, 4, 1), max_trials=4)
    code, _, _, script = run(options, lambda value, _: load(STEADY if value == 1 else UNSTEADY))
    assert code is ExitCode.DONE
    assert script.measured == [1, 2, 2]


def test_the_latency_of_calls_that_nobody_waits_for_may_go_on_changing_which_is_said_after_the_last_trial():
    def answer(_, before):
        return [measured_window(100.0, 1e6 * 2 ** (before + place)) for place in range(3)]

    assert run(Options("m"), lambda *given: [answer(*given)])[0] is ExitCode.UNSTABLE
    code, _, complaints, script = run(Options("m", is_async=True, max_trials=5), lambda *given: [answer(*given)])
    assert (code, script.counts) == (ExitCode.DONE, [3, 1, 1])
    assert complaints == ["Warning: Request latency is not stabilizing. Please try lowering the request rate."]
    sequences = ModelTraits(has_sequences=True)
    assert run(Options("m"), lambda *given: [answer(*given)], sequences)[0] is ExitCode.DONE
    assert run(Options("m", is_sync=True), lambda *given: [answer(*given)], sequences)[0] is ExitCode.UNSTABLE


def test_windows_above_the_threshold_end_the_trials_and_count_as_unstable_if_they_do_not_agree():
    options = Options("m", latency_threshold_ms=1, is_verbose=True)
    code, _, complaints, script = run(options, lambda *_: load(UNSTEADY, latency_ns=2e6))
    assert (code, script.counts) == (ExitCode.UNSTABLE, [3])
    assert complaints[0].startswith("Failed to obtain stable measurement within 10 measurement windows")


def test_a_model_with_sequences_is_called_asynchronously_which_the_settings_say():
    lines = run(Options("m"), lambda *_: load(), ModelTraits(has_sequences=True))[1]
    assert "  Stabilizing using average throughput" in lines
    assert "  Using asynchronous calls for inference" in lines


def test_a_sweep_of_sequences_needs_an_end_before_anything_is_printed():
    lines = list[str]()
    options = Options("m", load_range=LoadRange(1, 0), latency_threshold_ms=5)
    with pytest.raises(PerfkitError, match=r"^The 'end' concurrency can not be 0 for sequence models when using asynchronous API\.$"):
        profile([options], Script(None, [ModelTraits(has_sequences=True)]), Output(lines.append, print))
    assert lines == []


def test_failed_requests_end_the_command_with_their_message_and_keep_earlier_loads():
    failure = Failure(outcome="rejected", status="500", message="out of memory", cause=None, count=3)

    def answer(value, _):
        return load() if value == 1 else load(failed=3, sent=100, failures=(failure,))

    code, lines, complaints, _ = run(Options("m", load_range=LoadRange(1, 4, 1)), answer)
    assert code is ExitCode.FAILED
    assert complaints[0].endswith("3 of 100 requests failed, most of them with: out of memory")
    assert lines[-1].startswith("Concurrency: 1, throughput")


def test_a_last_window_without_an_answer_is_exit_code_3_and_one_that_slides_out_is_nothing():
    code, _, complaints, script = run(Options("m", max_trials=4), lambda *_: load((0.0, 100.0, 100.0)))
    assert (code, script.counts) == (ExitCode.NO_REQUESTS, [3, 1])
    assert complaints == ["No valid requests recorded within time interval. Please use a larger time window."]
    rates = (0.0, 100.0, 100.0, 100.0)
    assert run(Options("m"), lambda _, before: load(rates[before:]))[0] is ExitCode.DONE


def test_an_unreachable_server_is_exit_code_99():
    code, lines, complaints, _ = run(Options("m"), lambda *_: TargetError("nobody listens"))
    assert (code, complaints) == (ExitCode.FAILED, ["error: nobody listens"])
    assert lines[-1] == "Request concurrency: 1"


def test_an_interrupt_reports_what_is_measured():
    options = Options("m", load_range=LoadRange(1, 4, 1))
    code, lines, _, _ = run(options, lambda value, _: load() if value == 1 else Interrupted())
    assert code is ExitCode.DONE
    assert "Waiting for in-flight inferences to complete." in lines
    assert lines[-1].startswith("Concurrency: 1, throughput")


def test_warm_up_requests_precede_each_load():
    options = Options("m", load_range=LoadRange(1, 2, 1), warmup_request_count=20)
    assert run(options, lambda *_: load())[3].warm_ups == [1, 2]
    others = [Options("a"), Options("b", warmup_request_count=20)]
    assert run(others, lambda *_: [load()] * 2)[3].warm_ups == [1]


def test_a_number_of_requests_has_one_window_which_is_stable_by_definition():
    code, lines, _, script = run(Options("m", request_count=20), lambda *_: load((100.0,)))
    assert (code, script.measured) == (ExitCode.DONE, [1])
    assert "  Sending 20 benchmark requests" in lines


def test_models_that_run_at_once_are_reported_one_after_the_other(tmp_path):
    options = [
        Options(name, csv_file=str(tmp_path / f"{name}.csv"), is_mpi=True, load_range=LoadRange(load, load))
        for name, load in (("one", 1), ("two", 5))
    ]
    code, lines, _, script = run(options, lambda *_: [load((10.0,) * 3), load((20.0,) * 3)])
    assert (code, script.measured) == (ExitCode.DONE, [1])
    assert [line for line in lines if "Throughput" in line] == ["    Throughput: 10 infer/sec", "    Throughput: 20 infer/sec"]
    assert (tmp_path / "two.csv").read_text().splitlines()[1].startswith("5,20,")
    assert [line for line in lines if "oncurrency:" in line] == [
        "Request concurrency: 1",
        "Request concurrency: 5",
        "Concurrency: 1, throughput: 10 infer/sec, latency 1000 usec",
        "Concurrency: 5, throughput: 20 infer/sec, latency 1000 usec",
    ]


@pytest.mark.parametrize(("place", "reason"), [("none/out.csv", "No such file or directory"), ("", "Is a directory")])
def test_a_csv_file_that_cannot_be_written_is_refused_before_the_load(tmp_path, place, reason):
    path = tmp_path / place
    script = Script(lambda *_: load(), [ModelTraits()])
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

    def answer(*_):
        (tmp_path / "gone").rmdir()
        return [load(), load()]

    options = [Options("m", csv_file=str(tmp_path / name), is_mpi=True) for name in ("gone/one.csv", "two.csv")]
    code, _, complaints, _ = run(options, answer)
    assert code is ExitCode.FAILED
    assert complaints == [f"error: -f {tmp_path}/gone/one.csv: it cannot be written: No such file or directory"]
    assert (tmp_path / "two.csv").exists()
