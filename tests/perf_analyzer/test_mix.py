from perfkit.perf_analyzer.mix import commands_to_run, load_values
from perfkit.perf_analyzer.options import LoadRange, Options


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
