import pytest

import perfkit
from perfkit.perf_analyzer.command_line import commands_to_run, load_values, parse, split_commands
from perfkit.perf_analyzer.options import CommandLineError, LoadRange, Options, UnsupportedError


def _refused(line: str) -> tuple[int, str]:
    with pytest.raises(CommandLineError) as error:
        parse(line.split())
    return error.value.exit_code, str(error.value)


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("-m simple", "url", "localhost:8000"),
        ("-m simple -i gRPC", "url", "localhost:8001"),
        ("-m simple -i grpc -u host:9", "url", "host:9"),
        ("-m simple --collect-metrics -u 10.0.0.1:8000", "metrics_url", "10.0.0.1:8002/metrics"),
        ("-m simple --collect-metrics -u host", "metrics_url", "localhost:8002/metrics"),
        ("-m simple --collect-metrics --metrics-url x/y", "metrics_url", "x/y"),
        ("-m simple --collect-metrics --metrics-interval 1000.0", "metrics_interval_ms", 1000),
        ("-m simple", "load_range", LoadRange(1, 1, 1)),
        ("-m simple --concurrency-range 2:8:2", "load_range", LoadRange(2, 8, 2)),
        ("-m simple --request-rate-range 0.5:2", "load_range", LoadRange(0.5, 2, 1)),
        ("-m simple --request-rate 5", "load_mode", "request_rate"),
        ("-m simple -t 3 -c 5 -d", "load_range", LoadRange(3, 5, 1)),
        ("-m simple -t 3 --request-rate 5", "load_mode", "concurrency"),
        ("-m simple --shape a:b:3,4 --shape a:b:5", "shapes", {"a:b": (5,)}),
        ("-m simple -H a:b -Hc:d:e", "headers", {"a": "b", "c": "d:e"}),
        ("-m simple --request-count 5 --request-count 7", "request_count", 5),
        ("-m simple --request-count 5", "measurement_mode", "count_windows"),
        ("-m simple --request-count 5", "measurement_request_count", 5),
        ("-m simple -p 100 -p200", "interval_ms", 200),
        ("-m simple --percentile 95", "percentile", 95),
        ("-m simple --percentile 95 --percentile -1", "percentile", None),
        ("-m simple -i grpc --request-parameter a:7:INT --request-parameter b:true:bool", "parameters", {"a": 7, "b": True}),
        ("-m simple -i grpc --request-parameter a:TRUE:bool --request-parameter b:x:string", "parameters", {"a": False, "b": "x"}),
        ("-m simple -i grpc --request-parameter a:7:uint", "parameters", {}),
        ("-m simple -i grpc --request-parameter a:7:uint", "ignored_parameters", ("a",)),
        ("-m simple --bls-composing-models=a:3,b", "bls_composing_models", ("a:3", "b")),
        ("-m simple -vv", "is_verbose", True),
        (
            "-m simple -d",
            "warnings",
            ("Warning: -d is deprecated and will be removed in an upcoming version. Use --concurrency-range instead.",),
        ),
    ],
)
def test_an_option_stands_for_its_value(line, field, value):
    assert getattr(parse(line.split()), field) == value


@pytest.mark.parametrize(
    ("line", "exit_code", "message"),
    [
        ("", 99, "Error: -m: give the model's name"),
        ("-m simple -b x", 99, "Error: -b: expected a whole number, found 'x'"),
        *((f"-m simple -b {number}", 99, f"Error: -b: expected a whole number, found '{number}'") for number in ("٣", "1_0", "１２")),
        ("-m simple -b 0", 99, "Error: -b: expected a whole number from 1 to 2147483647, found '0'"),
        ("-m simple -p 99999999999", 99, "Error: -p: expected a whole number from 1 to 2147483647, found '99999999999'"),
        ("-m simple --shared-memory all", 99, "Error: --shared-memory: expected system, cuda or none, found 'all'"),
        ("-m simple -h", 99, "Error: option -h not recognized"),
        ("-m simple --proto http", 99, "Error: option --proto not recognized"),
        ("-m simple --request-rate-range 5 -d", 99, "Error: -d: --request-rate-range has already chosen the load mode: there is one"),
        ("-m simple -H name", 99, "Error: -H: expected name:value, found 'name'"),
        ("-m simple -i grpc --request-parameter a:x:int", 99, "Error: --request-parameter: expected a whole number, found 'a:x:int'"),
        ("--version -m simple", 0, f"Perf Analyzer Version {perfkit.__version__} (perfkit)"),
    ],
)
def test_a_refused_line_names_its_option_and_has_perf_analyzers_exit_code(line, exit_code, message):
    assert _refused(line) == (exit_code, message)


@pytest.mark.parametrize(
    "line",
    [
        "-m simple --service-kind tfserving -i grpc",
        "-m simple -i grpc --streaming --periodic-concurrency-range 1:3 --profile-export-file new.json",
        "-m simple -i grpc --streaming --sync",
    ],
)
def test_what_v2_does_not_have_is_accepted_by_the_parser_but_not_run(line):
    with pytest.raises(UnsupportedError) as error:
        parse(line.split())
    assert error.value.exit_code == 99


def test_a_server_within_the_process_is_refused_as_that():
    with pytest.raises(UnsupportedError, match="for no server"):
        parse(["-m", "simple", "--service-kind", "triton_c_api", "--model-repository", "/models"])


def test_intervals_have_their_mean_rate(tmp_path):
    file = tmp_path / "intervals.txt"
    file.write_text("1000\n2000\n")
    assert parse(["-m", "simple", "--request-intervals", str(file)]).load_range == LoadRange(666, 666, 1)


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
