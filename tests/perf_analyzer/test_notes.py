"""Errors of a command in the words of its options: a user of perf_analyzer has no scenario whose keys could be changed."""

import pathlib
import ssl

import pytest

from perfkit.errors import PerfkitError
from perfkit.perf_analyzer import notes
from perfkit.perf_analyzer.command_line import parse
from perfkit.perf_analyzer.notes import in_options
from perfkit.perf_analyzer.option_table import BY_NAME
from perfkit.perf_analyzer.scenario import scenario_for
from perfkit.protocol.message import ModelMetadata, TensorMetadata
from perfkit.scenario.file import read_document
from perfkit.transport.connect import describe_tls_error
from perfkit.workload.requests import make_requests

INPUTS = (TensorMetadata("INPUT0", "FP32", (-1, 3)),)


def complaint(line):
    """What a command line is told about its load and its requests."""
    options = parse(line.split())
    with pytest.raises(PerfkitError) as caught:  # noqa: PT012 - either may raise it
        loaded = read_document(scenario_for([options], options.load_range.start), environ={})
        make_requests(loaded.scenario.workload, ModelMetadata("m", (), "", INPUTS, ()), 0, "", pathlib.Path())
    return in_options(str(caught.value), options)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("-m m", "the model's shape is [-1, 3]: give --shape INPUT0:… with a size for each -1"),
        ("-m m --shape INPUT:2,3", "--shape: the model has no input 'INPUT'; did you mean 'INPUT0'? It has: INPUT0"),
        (
            "-m m --sequence-id-range 5:6 --request-rate 5",
            "--sequence-id-range: 1 ids are too few for the 4 live sequences of --num-of-sequences: raise its end, or lower --num-of-sequences",
        ),
        (
            "-m m --sequence-id-range 5:5 --request-rate 5",
            "--sequence-id-range: the end must be above the start, found 5 and 5: the last id is the one below it",
        ),
        ("-m m --concurrency-range 70000", "--concurrency-range: input should be less than or equal to 65536, found 70000"),
        ("-m m -b 2 --shape INPUT0:2,3", "-b: model 'm' does not support batches (its max_batch_size is 0): set it to 1, found 2"),
    ],
)
def test_an_error_names_the_option_that_changes_it(line, expected):
    assert complaint(line) == expected


@pytest.mark.parametrize(
    ("line", "message", "expected"),
    [
        ("-m m", "model 'm' is decoupled. Add `stream: {}` to the scenario", "model 'm' is decoupled. Add -i grpc --streaming"),
        ("-m m -i grpc", "model 'm' is decoupled. Add `stream: {}` to the scenario", "model 'm' is decoupled. Add --streaming"),
        ("-m m", "it may require a client certificate (target.tls.cert)", "it may require a client certificate (--ssl-https-client-certificate-file)"),
        ("-m m -i grpc", "see (target.tls.cert)", "see (--ssl-grpc-certificate-chain-file)"),
        (
            "-m m",
            "d.json: data with timestamps is a schedule: give it as load.replay.trace, and remove workload.data",
            "d.json: data with timestamps is a schedule: add --fixed-schedule",
        ),
        ("-m m", "d.json: X: give workload.data, or give workload.inputs.X.shape", "d.json: X: give --input-data, or give --shape X:…"),
        ("-m m --request-intervals pyproject.toml", "load.replay.trace: the file none does not exist", "--request-intervals: the file none does not exist"),
        (
            "-m m",
            "the answer is longer than 9 B: target.max_answer sets this limit, and the server's answers need more: raise it",
            "the answer is longer than 9 B, a limit that only perfkit run has a key for: --print-scenario, and target.max_answer there",
        ),
        ("-m m", "give credentials in target.headers", "give credentials in -H"),
    ],
)  # fmt: skip
def test_a_sentence_about_a_scenario_is_said_of_options(line, message, expected):
    assert in_options(message, parse(line.split())) == expected


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("-m m", "raise --measurement-interval (-p)"),
        ("-m m --measurement-mode count_windows", "raise --measurement-request-count"),
        ("-m m --request-count 9", "raise --request-count"),
    ],
)
def test_a_warning_names_the_option_for_longer_windows(line, advice):
    message = "Too few samples for p99: at least 900 are needed; measure longer."
    assert notes.warning_in_options(message, parse(line.split())) == f"Too few samples for p99: at least 900 are needed; {advice}."


@pytest.mark.parametrize(
    ("line", "file"),
    [("-m m", "--ssl-https-ca-certificates-file"), ("-m m -i grpc", "--ssl-grpc-root-certifications-file")],
)
def test_a_certificate_that_is_not_trusted_names_the_option_of_the_protocol(line, file):
    error = ssl.SSLCertVerificationError("")
    error.verify_message = "self-signed certificate"
    assert (
        in_options(describe_tls_error(error), parse(line.split()))
        == f"its certificate is not trusted (self-signed certificate): see {file}"
    )


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ("-m n --num-of-sequences 99999 --request-rate 5", "--num-of-sequences: input should be less than or equal to 65536, found 99999"),
        ("-m n --sequence-id-range 5:5 --request-rate 5", "--sequence-id-range: the end must be above the start, found 5 and 5"),
    ],
)
def test_an_error_of_several_commands_names_the_one(second, expected):
    commands = [parse(["-m", "m"]), parse(second.split())]
    with pytest.raises(PerfkitError) as caught:
        read_document(scenario_for(commands, 1), environ={})
    assert in_options(str(caught.value), commands[0]).startswith(f"perf_analyzer 2 of the line: {expected}")


def test_every_option_that_is_named_exists():
    named = {*notes._KEYS.values(), *(option for of_protocol in notes._TLS.values() for option in of_protocol.values())}
    assert named <= {*BY_NAME}
