import contextlib
import dataclasses
import pathlib

import pytest
import yaml

from perfkit.perf_analyzer.command_line import parse
from perfkit.perf_analyzer.notes import notes, notes_on_run
from perfkit.perf_analyzer.options import UnsupportedError
from perfkit.perf_analyzer.scenario import print_scenario, scenario_for, scenario_of
from perfkit.perf_analyzer.windows import loads
from perfkit.scenario.credentials import resolve_address
from perfkit.scenario.file import read_document
from perfkit.scenario.sequences import Sequences
from tests.documented_command_lines import FILES, LINES


@pytest.fixture(scope="module")
def _files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documented")
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    with contextlib.chdir(folder):
        yield


def _scenario(line: str, has_sequences: bool | None = None):
    options = parse(line.split())
    if has_sequences is not None:
        options = dataclasses.replace(options, sequences=dataclasses.replace(options.sequences, is_given=has_sequences))
    return scenario_of([options])


@pytest.mark.usefixtures("_files")
@pytest.mark.parametrize(("line", "scenario"), [(line, scenario) for _, line, scenario in LINES])
def test_a_documented_command_line_stands_for_a_valid_scenario(line, scenario):
    found = _scenario(line)
    assert found == scenario
    read_document(found, environ={})


def test_one_load_of_a_sweep_has_a_scenario_of_its_own():
    options = parse(["-m", "m", "-i", "grpc", "--streaming", "--concurrency-range", "1:100:33"])
    scenario = scenario_for([options], 34.0)
    assert scenario["load"] == {"closed": {"concurrency": [34]}}
    assert scenario["stream"]["in_flight"] == 1  # perf_analyzer has a thread, and a stream, for each request of the range's end
    assert scenario["gpu"] == {"idle": "0s"}
    rate = scenario_for([parse(["-m", "m", "--request-rate-range", "10:0", "-l", "5", "--percentile", "99"])], 12.5)
    assert rate["load"] == {"open": {"rate": [12.5], "arrivals": "constant"}}
    assert rate["measure"] == {"duration": "15000ms", "repetitions": 1, "warmup": "1s"}  # three windows without a pause between them
    assert scenario_for([parse(["-m", "m", "-p", "500"])], 1)["measure"] == {"duration": "500ms", "repetitions": 3, "warmup": "1s"}


def test_sequences_are_sent_where_the_model_takes_them():
    assert "sequences" not in _scenario("-m m --sequence-length 5", has_sequences=False)
    scenario = _scenario("-m m --request-rate 5 --shared-memory system", has_sequences=True)
    assert scenario["sequences"] == {"length": {"uniform": [17, 23]}, "live": 4}
    assert scenario["shared_memory"] == {"kind": "system", "outputs": False}
    read_document(scenario, environ={})


@pytest.mark.usefixtures("_files")
def test_sequences_of_input_data_are_as_long_as_their_streams_unless_a_length_is_given():
    line = "-m m --input-data json_file1.json --request-rate 5"
    assert _scenario(line, has_sequences=True)["sequences"] == {"live": 4}
    assert _scenario(f"{line} --sequence-length 1", has_sequences=True)["sequences"] == {"length": 1, "live": 4}
    closed = _scenario("-m m --input-data json_file1.json", has_sequences=True)
    assert closed["sequences"] == {}
    assert read_document(closed, environ={}).scenario.sequences == Sequences()


def test_every_answer_is_compared_where_the_data_say_what_they_are(tmp_path):
    for name, text in (("data", '{"data": []}'), ("expected", '{"data": [], "validation_data": []}'), ("empty", "")):
        (tmp_path / name).write_text(text)
    assert "check" not in _scenario(f"-m m --input-data {tmp_path / 'data'} --input-data {tmp_path / 'empty'} --input-data {tmp_path}")
    scenario = _scenario(f"-m m --input-data {tmp_path / 'data'} --input-data {tmp_path / 'expected'}")
    check = read_document(scenario, environ={}).scenario.check
    assert (check.share, check.tolerance_of("FP32")) == (1, 0)


def test_a_range_of_ids_has_an_end():
    assert _scenario("-m m --sequence-id-range 7", has_sequences=True)["sequences"].get("end_id") is None
    scenario = _scenario("-m m --sequence-id-range 7:10", has_sequences=True)
    assert (scenario["sequences"]["first_id"], scenario["sequences"]["end_id"]) == (7, 10)
    read_document(scenario, environ={})


def test_several_commands_are_a_mix_of_their_models():
    lines = (
        "--enable-mpi -m a -b 4 -p 3000 --concurrency-range 8",
        "--enable-mpi -m b -x 2 --request-rate-range 5",
        "--enable-mpi -m a -i grpc -u localhost:8001 --streaming -p 2000",
    )
    scenario = scenario_of([parse(line.split()) for line in lines])
    inputs = {"*": {"generate": "random", "text_length": 128}}
    assert scenario == {
        "name": "a-b-a-3",
        "target": {"timeout": "10m"},
        "workloads": [
            {
                "name": "a",
                "batch_size": 4,
                "inputs": inputs,
                "target": {"url": "http://localhost:8000", "model": "a"},
                "load": {"closed": {"concurrency": [8]}},
            },
            {
                "name": "b",
                "inputs": inputs,
                "target": {"url": "http://localhost:8000", "model": "b", "version": "2"},
                "load": {"open": {"rate": [5], "arrivals": "constant"}},
            },
            {
                "name": "a-3",
                "inputs": inputs,
                "target": {"url": "grpc://localhost:8001", "model": "a"},
                "stream": {"requests_per_stream": 1_000_000_000, "in_flight": 1},
                "load": {"closed": {"concurrency": [1]}},
            },
        ],
        "measure": {"duration": "5000ms", "repetitions": 3},
    }
    assert len(read_document(scenario, environ={}).workloads()) == 3


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("-u h:1", "http://h:1"),
        ("-u http://u:p@h/x", "http://u:p@h/x"),
        ("-i grpc -u h", "grpc://h:443"),
        ("-i grpc -u [::1]:9", "grpc://[::1]:9"),
        ("-i grpc -u [::1]", "grpc://[::1]:443"),
        ("-i grpc -u dns:///h:9", "grpc://h:9"),
        ("-i grpc -u unix:/run/t.sock", "unix:/run/t.sock"),
    ],
)
def test_a_server_has_the_url_of_its_protocol(url, expected):
    assert _scenario(f"-m m {url}")["target"]["url"] == expected


@pytest.mark.usefixtures("_files")
@pytest.mark.parametrize(
    "line",
    [
        "-m m -i grpc -u http://h:8001",
        "-m m --concurrency-range 1:100000",
        "-m m --concurrency-range 1:2:0",
        "-m m --request-rate-range 1:inf",
        "-m m --sequence-length-variation inf",
        "-m m --request-intervals my_intervals.txt --num-of-sequences 3",
        "-m m --fixed-schedule --input-data input_data.json --input-data input_data.json",
    ],
)
def test_what_a_scenario_does_not_have_is_refused_with_exit_code_99(line):
    with pytest.raises(UnsupportedError) as error:
        _scenario(line)
    assert error.value.exit_code == 99


@pytest.mark.parametrize("line", ["-m m --concurrency-range 1:4", "-m m --concurrency-range 4:1:2", "-m m --request-rate-range 5:6"])
def test_several_models_have_one_load_each(line):
    with pytest.raises(UnsupportedError, match="when in multi-model mode"):
        scenario_of([parse(line.split()), parse(["-m", "n"])])


def test_a_header_is_sent_as_it_is_given():
    document = _scenario("-m m -H A:${B}$${C}")
    target = read_document(document, environ={}).scenario.target
    assert resolve_address(target, "http://h", pathlib.Path(), {"B": "no", "C": "no"}).headers == {"A": "${B}$${C}"}


def test_a_printed_scenario_is_read_again_and_holds_no_secret():
    options = parse(["-m", "m", "-H", "Authorization:hunter2", "--request-rate", "5"])
    text = print_scenario([options])
    assert "hunter2" not in text
    assert "# --request-rate-range: " in text
    document = yaml.safe_load(text)
    assert document["target"].pop("headers") == {"Authorization": "${TARGET_AUTHORIZATION}"}
    expected = scenario_of([options])
    del expected["target"]["headers"]
    assert document == expected


@pytest.mark.usefixtures("_files")
def test_a_printed_scenario_can_be_used_in_any_folder():
    here = pathlib.Path.cwd()
    data = yaml.safe_load(
        print_scenario([parse(["-m", "m", "--input-data", "json_file1.json", "--input-data", str(here / "json_file1.json")])])
    )
    assert data["workload"]["data"] == [str(here / "json_file1.json")] * 2
    replay = yaml.safe_load(print_scenario([parse(["-m", "m", "--request-intervals", "json_file1.json"])]))
    assert replay["load"]["replay"]["trace"] == str(here / "json_file1.json")
    secured = parse(["-m", "m", "-u", "https://h", "--ssl-https-ca-certificates-file", "json_file1.json"])
    assert yaml.safe_load(print_scenario([secured]))["target"]["tls"] == {"ca": str(here / "json_file1.json")}


def test_a_printed_range_has_the_loads_that_are_measured():
    options = parse(["-m", "m", "--request-rate-range", "0.1:0.7:0.1"])
    sweep, measured = loads(options), []
    with contextlib.suppress(StopIteration):
        measured.append(next(sweep))
        while True:
            measured.append(sweep.send(True))
    assert len(measured) == 7
    assert scenario_of([options])["load"]["open"]["rate"] == measured


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("--request-rate-range 5", "--request-rate-range"),
        ("--request-rate-range 5 --request-distribution poisson", "--request-distribution"),
        ("-s 999", "--stability-percentage"),
        ("-r 3", "--max-trials"),
        ("-l 5", "--latency-threshold"),
        ("--percentile 95", "--percentile"),
        ("--input-data random", "--input-data random"),
        ("-i grpc -H a:b", "-H"),
        ("--shared-memory system", "--shared-memory"),
        ("-a", "--async"),
        ("--max-threads 4", "--max-threads"),
        ("--trace-level TENSORS", "--trace-"),
        ("--request-count 5", "--request-count"),
        ("--warmup-request-count 5", "--warmup-request-count"),
        ("--enable-mpi", "--enable-mpi"),
    ],
)
def test_what_changes_in_meaning_is_said_once(line, option):
    said = notes(parse(["-m", "m", *line.split()]))
    assert len([note for note in said if note.startswith(option)]) >= 1
    assert len(set(said)) == len(said)


def test_a_run_keeps_the_windows_and_thresholds_and_says_what_else_differs():
    line = "-m m -s 999 -r 4 -l 5 --percentile 95 --request-rate-range 5 --async --max-threads 2 --input-data zero"
    assert notes_on_run(parse(line.split())) == ()
    assert [note.split(":")[0] for note in notes_on_run(parse(["-m", "m", "--request-count", "5"]))] == [
        "--request-count",
        "--input-data random",
    ]
