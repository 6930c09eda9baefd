import pytest

from perfkit.perf_analyzer.mix import commands_to_run, load_values, split_commands
from perfkit.perf_analyzer.options import CommandLineError, LoadRange, Options


def test_each_command_of_several_has_its_own_load():
    commands = [Options("a", load_range=LoadRange(4, 4)), Options("b", load_mode="request_rate", load_range=LoadRange(7.5, 7.5))]
    assert load_values(commands, 4) == [4, 7.5]
    assert load_values(commands[:1], 9) == [9]


def test_several_commands_are_measured_for_the_longest_interval_instead_of_a_number_of_requests():
    counted = Options("a", measurement_mode="count_windows", interval_ms=1000)
    requests = Options("b", measurement_mode="count_windows", request_count=30, interval_ms=4000)
    timed = Options("c", interval_ms=2000)
    commands, notes = commands_to_run([counted, requests, timed])
    assert [(one.measurement_mode, one.request_count, one.interval_ms) for one in commands] == [("time_windows", 0, 4000)] * 3
    assert notes == [
        "--measurement-mode count_windows: several models are measured for a time instead, in windows of 4000 ms",
        "--request-count: several models are measured for a time instead, in windows of 4000 ms",
    ]


def test_a_single_command_is_run_as_it_is():
    options = Options("a", request_count=30)
    assert commands_to_run([options]) == ([options], [])


def test_model_analyzers_line_is_split_into_the_arguments_of_each_model():
    line = (
        "mpiexec --allow-run-as-root --tag-output -n 1 perf_analyzer --enable-mpi -m a -b 1 --shape x:3 "
        ": -n 1 /opt/bin/perf_analyzer --enable-mpi -m b -u localhost:8000"
    )
    assert split_commands(line.split()) == [
        ["--enable-mpi", "-m", "a", "-b", "1", "--shape", "x:3"],
        ["--enable-mpi", "-m", "b", "-u", "localhost:8000"],
    ]


@pytest.mark.parametrize("line", ["mpiexec", "mpiexec -n 1", "mpiexec -n 1 perf_analyzer -m a :", "mpiexec -n 2 perf_analyzer"])
def test_a_line_that_does_not_run_one_perf_analyzer_for_each_model_is_refused(line):
    with pytest.raises(CommandLineError):
        split_commands(line.split())
