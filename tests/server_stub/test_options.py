"""Command-line options."""

import os
import pathlib

import pytest

from perfkit.errors import UsageError
from server_stub.__main__ import main
from server_stub.options import Limits, Options, parse_cpus, parse_options


def test_the_defaults():
    assert parse_options([]) == Options()


def test_limits_are_parsed():
    words = "--max-body 1 --max-connections 2 --max-calls 3 --max-queue 4 --head-timeout 5 --body-timeout 6 --write-timeout 7.5 --idle-timeout 8 --stop-timeout 9"
    assert parse_options(words.split()).limits == Limits(1, 2, 3, 4, 5, 6, 7.5, 8, 9)


def test_all_options_are_parsed(tmp_path):
    file = tmp_path / "model.onnx"
    file.touch()
    cpu = min(os.sched_getaffinity(0))
    text = f"--host ::1 --http-port 0 --grpc-port 0 --device cpu --threads 2 --cpus {cpu} --model simple densenet_onnx --model simple --exit-with-stdin"
    assert parse_options([*text.split(), "--densenet", str(file)]) == Options(
        host="::1",
        http_port=0,
        grpc_port=0,
        metrics_port=0,
        device="cpu",
        threads=2,
        cpus=frozenset({cpu}),
        exit_with_stdin=True,
        models=("simple", "densenet_onnx"),
        densenet=pathlib.Path(file),
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("--device tpu", "Argument --device: invalid choice: 'tpu'"),
        ("--http-port 65536", "--http-port 65536: a port must be between 0, which selects a free one, and 65535"),
        ("--grpc-port -1", "--grpc-port -1: a port must be between 0, which selects a free one, and 65535"),
        ("--grpc-port x", "Argument --grpc-port: invalid int value: 'x'"),
        ("--http-port 8001", "--http-port and --grpc-port are both 8001: use different ports."),
        ("--metrics-port 70000", "--metrics-port 70000: a port must be between 0, which selects a free one, and 65535"),
        ("--metrics-port 8001", "--grpc-port and --metrics-port are both 8001: use different ports."),
        ("--threads 0", "--threads 0: at least 1 thread is required."),
        ("--model nope", "--model nope: there is no such built-in model; choose from simple, simple_int8, simple_string,"),
        ("--model-repository /nowhere", "--model-repository /nowhere: there is no such folder."),
        (
            "--model-repository . --densenet pyproject.toml",
            "--densenet configures a built-in model, but --model-repository replaces the built-in models: remove one.",
        ),
        ("--densenet /nowhere.onnx", "--densenet /nowhere.onnx: there is no such file."),
        ("--cpus two", "--cpus two: expected numbers and ranges such as 0,2-3."),
        ("--cpus 0,", "--cpus 0,: expected numbers"),
        ("--cpus 0-", "--cpus 0-: expected numbers"),
        ("--cpus 3-2", "--cpus 3-2: the range 3-2 is reversed."),
        ("--cpus 0-99999", "this process may only use the CPUs"),
        ("--max-connections 0", "--max-connections 0: must be above 0 and at most 1048576."),
        ("--max-body 2147483648", "--max-body 2147483648: must be above 0 and at most 2147483647."),
        ("--head-timeout -1", "--head-timeout -1.0: must be above 0"),
        ("--body-timeout nan", "--body-timeout nan: must be above 0"),
        ("--write-timeout inf", "--write-timeout inf: must be above 0"),
        *((f"--http-port {number}", "Argument --http-port: invalid int value: ") for number in ("٣", "1_000", "+1", "１２", "9" * 5000)),
        *((f"--head-timeout {number}", "Argument --head-timeout: invalid float value: ") for number in ("٣", "1_0")),
        ("--max-queue 1.5", "Argument --max-queue: invalid int value: '1.5'"),
        ("--tls-cert pyproject.toml", "--tls-cert and --tls-key require each other: give both or neither."),
        ("--tls-key pyproject.toml", "--tls-cert and --tls-key require each other: give both or neither."),
        ("--log-format xml", "Argument --log-format: invalid choice: 'xml'"),
        ("--http-por 0", "Unrecognized arguments: --http-por 0; did you mean --http-port?; see --help."),
        ("--modle=simple", "Unrecognized arguments: --modle=simple; did you mean --model?; see --help."),
        ("--qqqq", "Unrecognized arguments: --qqqq; see --help."),
    ],
)
def test_unusable_options_are_explained(text, sentence):
    with pytest.raises(UsageError) as error:
        parse_options(text.split())
    assert sentence in str(error.value)


def test_a_free_http_or_grpc_port_implies_a_free_metrics_port():
    assert [parse_options(text.split()).metrics_port for text in ("--http-port 0", "--grpc-port 0", "--http-port 9000")] == [0, 0, 8002]
    assert parse_options(["--http-port", "0", "--metrics-port", "9002"]).metrics_port == 9002


def test_cpus_are_numbers_and_ranges(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert parse_cpus("0,2-3,7-7") == {0, 2, 3, 7}


def test_ctrl_c_while_libraries_are_imported_ends_without_a_traceback(monkeypatch, capsys):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("server_stub.__main__.parse_options", interrupt)
    assert main([]) == 130
    assert capsys.readouterr() == ("", "")
