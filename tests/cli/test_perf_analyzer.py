"""perf_analyzer's command lines against the bundled server: output, files and exit codes."""

import csv
import json
import re
import signal
import subprocess
import sys
import types

import pytest
import yaml

import perfkit
from perfkit.cli import perf_analyzer
from perfkit.cli.main import main
from perfkit.perf_analyzer.export_file import ExportFile
from perfkit.scenario.file import read_document
from tests import forked

MODELS = ("simple", "simple_dyna_sequence", "repeat_int32")


@pytest.fixture(scope="module")
def server():
    """The bundled server; its addresses by protocol."""
    command = [sys.executable, "-m", "server_stub", "--http-port=0", "--grpc-port=0", "--exit-with-stdin"]
    command += [f"--model={model}" for model in MODELS]
    with forked.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        ready = json.loads(process.stdout.readline())
        yield types.SimpleNamespace(**{protocol: f"127.0.0.1:{ready[f'{protocol}_port']}" for protocol in ("http", "grpc")})
        process.stdin.close()


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Runs a command in an empty folder, with a short warm-up; its exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("perfkit.perf_analyzer.scenario._WARM_UP", "50ms")

    def call(*words):
        capsys.readouterr()
        code = main(["perf-analyzer", *map(str, words)])
        return types.SimpleNamespace(code=code, **dict(zip(("out", "err"), capsys.readouterr(), strict=True)))

    return call


def test_a_number_of_requests_over_http_with_every_file(server, run, tmp_path):
    done = run(
        "-m", "simple", "-u", server.http, "--request-count", 20, "--concurrency-range", 2, "-f", "out.csv", "--verbose-csv", "--percentile=75",
        "--profile-export-file", "export.json",
    )  # fmt: skip
    assert done.code == 0
    assert "  Sending 20 benchmark requests\n" in done.out
    assert "Request concurrency: 2\n  Client: \n    Request count: 20\n" in done.out
    assert "    Inference count: 20\n    Execution count: 20\n    Successful request count: 20\n" in done.out
    assert re.search(r"^Concurrency: 2, throughput: [\d.]+ infer/sec, latency \d+ usec$", done.out, re.MULTILINE)
    (row,) = csv.DictReader((tmp_path / "out.csv").read_text().splitlines())
    assert row["Concurrency"] == "2"
    assert [column for column in row if column.startswith("p")] == [f"p{number} latency" for number in (50, 75, 90, 95, 99)]
    assert 0 < int(row["p50 latency"]) <= int(row["p75 latency"]) <= int(row["p99 latency"])
    document = json.loads((tmp_path / "export.json").read_text())
    assert document["version"] == f"2.60.0 (perfkit {perfkit.__version__})"
    (experiment,) = document["experiments"]
    assert experiment["experiment"] == {"mode": "concurrency", "value": 2}
    assert len(experiment["requests"]) == 20


def test_rates_over_grpc_with_batches(server, run):
    done = run(
        "-m", "simple", "-i", "gRPC", "-u", server.grpc, "-b", 4, "--request-rate-range", "200:300:100", "--request-count", 40, "--async"
    )
    # a sweep and a number of requests exclude each other
    assert (done.code, done.out) == (99, "")
    done = run("-m", "simple", "-i", "gRPC", "-u", server.grpc, "-b", 4, "--request-rate-range", "200", "--request-count", 200)
    assert done.code == 0
    assert "Request Rate: 200 inference requests per second\n" in done.out
    assert "    Request count: 200\n" in done.out
    assert "    Inference count: 800\n    Execution count: " in done.out


def test_sequences_are_made_for_a_model_that_takes_them(server, run, tmp_path):
    done = run(
        "-m", "simple_dyna_sequence", "-u", server.http, "--request-count", 40, "--concurrency-range", 2, "--sequence-length", 5,
        "--sequence-length-variation", 0, "--input-data", "zero", "--profile-export-file", "export.json",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "  Using asynchronous calls for inference\n" in done.out
    assert re.search(r"^    Sequence count: [678] \(", done.out, re.MULTILINE)
    (experiment,) = json.loads((tmp_path / "export.json").read_text())["experiments"]
    ids = [request["sequence_id"] for request in experiment["requests"]]
    assert {ids.count(one) for one in set(ids)} <= {5, *range(1, 5)}
    assert sum(ids.count(one) == 5 for one in set(ids)) >= 6


def test_streams_of_a_decoupled_model(server, run, tmp_path):
    data = {"data": [{"IN": {"content": [1, 2, 3], "shape": [3]}, "DELAY": {"content": [0, 0, 0], "shape": [3]}, "WAIT": [0]}]}
    (tmp_path / "data.json").write_text(json.dumps(data))
    done = run(
        "-m", "repeat_int32", "-i", "grpc", "-u", server.grpc, "--streaming", "--input-data", "data.json", "--request-count", 10,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "  Detected decoupled model, using the first response for measuring latency\n" in done.out
    assert re.search(r"^    Response Throughput: [\d.]+ infer/sec$", done.out, re.MULTILINE)
    assert "Avg gRPC time" not in done.out
    plain = run("-m", "simple", "-i", "grpc", "-u", server.grpc, "--streaming", "--request-count", 10, "-f", "plain.csv")
    assert plain.code == 0, plain.err
    assert "Response Throughput" not in plain.out + (tmp_path / "plain.csv").read_text()
    assert "    Avg gRPC time: " in plain.out


def test_a_fixed_schedule_begins_with_its_warm_up(server, run, tmp_path):
    times_ms = [0, 20, 40, 60, 80]
    entries = [{"timestamp": [time_ms], "INPUT0": [time_ms] + [1] * 15, "INPUT1": [1] * 16} for time_ms in times_ms]
    (tmp_path / "data.json").write_text(json.dumps({"data": entries}))
    done = run(
        "-m", "simple", "-u", server.http, "--fixed-schedule", "--input-data", "data.json", "--warmup-request-count", 2,
        "--profile-export-file", "export.json",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert done.out.startswith(
        "*** Measurement Settings ***\n  Batch size: 1\n  Service Kind: TRITON\n  Sending 2 warmup requests\n  Sending 3 benchmark requests\n"
        "  Using synchronous calls for inference\n\n"
    )
    assert "    Request count: 3\n" in done.out
    (experiment,) = json.loads((tmp_path / "export.json").read_text())["experiments"]
    assert experiment["experiment"] == {"mode": "request_rate", "value": 0.0}
    assert sorted(request["request_inputs"]["INPUT0"][0] for request in experiment["requests"]) == [40, 60, 80]


def test_windows_are_measured_one_by_one_until_the_trials_are_used_up(server, run, tmp_path):
    done = run(
        "-m", "simple", "-u", server.http, "-p", 100, "-s", 0, "-r", 4, "-v", "--input-data", "zero", "--profile-export-file", "export.json"
    )  # fmt: skip
    assert done.code == 2
    assert re.findall(
        r"^  Pass \[(\d)\] throughput: [\d.]+ infer/sec\. Avg latency: \d+ usec \(std \d+ usec\)\. $", done.out, re.MULTILINE
    ) == [*"1234"]
    assert "Client" not in done.out
    assert done.err.endswith("Failed to obtain stable measurement.\n")
    (experiment,) = json.loads((tmp_path / "export.json").read_text())["experiments"]
    assert len(experiment["window_boundaries"]) == 8, "the windows do not touch"


def test_an_unknown_model_and_a_closed_port_are_exit_code_99(server, run):
    unknown = run("-m", "nobody", "-u", server.http)
    assert unknown.code == 99
    assert unknown.err.splitlines()[-1].startswith("error: ")
    assert "nobody" in unknown.err
    assert run("-m", "simple", "-u", "127.0.0.1:9").code == 99


def test_a_version_that_is_not_served_is_named(server, run):
    refused = run("-m", "simple", "-x", 99, "-u", server.grpc, "-i", "grpc")
    assert refused.code == 99
    assert refused.err.endswith("; it offers version 1 of this model, not 99\n")


def test_an_export_is_not_written_over_a_file(server, run, tmp_path):
    (tmp_path / "export.json").write_text("precious")
    done = run("-m", "simple", "-u", server.http, "--profile-export-file", "export.json")
    assert done.code == 99
    assert "does not exist yet" in done.err
    assert (tmp_path / "export.json").read_text() == "precious"


def test_the_scenario_is_printed_and_nothing_is_sent(run):
    done = run("-m", "simple", "-u", "127.0.0.1:9", "--concurrency-range", "1:4:1", "-p", 1000, "--print-scenario")
    assert done.code == 0
    scenario = read_document(yaml.safe_load(done.out), environ={}).scenario
    note = next(line for line in done.err.splitlines() if line.startswith("perfkit: "))
    assert f"\n# {note.removeprefix('perfkit: ')}\n" in done.out  # stays in a redirected file
    assert scenario.load.closed.concurrency == (1, 2, 3, 4)
    assert scenario.window_ns == 10**9
    assert scenario.target.url == "http://127.0.0.1:9"


def test_several_models_are_not_measured_for_a_number_of_requests_which_is_said(run):
    one, two = (("-n", 1, "perf_analyzer", "-m", name, "--enable-mpi", "--input-data", "zero") for name in ("one", "two"))
    done = run("mpiexec", *one, "--request-count", 30, ":", *two, "--print-scenario")
    assert done.code == 0
    assert [line for line in done.err.splitlines() if "-count" in line] == [
        "perfkit: --request-count: several models are measured for a time instead, in windows of 5000 ms"
    ]
    assert yaml.safe_load(done.out)["measure"]["duration"] == "5000ms"


def test_the_line_of_several_models_is_a_mix(server, run, tmp_path):
    common = ("--enable-mpi", "-u", server.http, "-p", 300, "-s", 9999, "--input-data", "zero")
    one = ("-n", 1, "perf_analyzer", "-m", "simple", *common, "--concurrency-range", 2, "-f", "one.csv")
    two = ("-n", 1, "perf_analyzer", "-m", "simple_dyna_sequence", *common, "--request-rate-range", 50, "-f", "two.csv")
    counted = ("--measurement-mode", "count_windows", "--warmup-request-count", 7)
    done = run("mpiexec", "--allow-run-as-root", "--tag-output", *one, *counted, ":", *two)
    assert done.code == 0, done.err
    rows = [next(csv.DictReader((tmp_path / f"{name}.csv").read_text().splitlines())) for name in ("one", "two")]
    assert all(float(row["Inferences/Second"]) > 0 for row in rows)
    assert (rows[0]["Concurrency"], rows[1]["Request Rate"]) == ("2", "50")
    assert "Sequence count: " in done.out, "the model takes sequences, which no option says"
    assert re.findall(r"^(\w[\w ]+: \d+)(?:\.00)?, throughput", done.out, re.MULTILINE) == ["Concurrency: 2", "Request Rate: 50"]
    assert "perfkit: --measurement-mode count_windows: several models are measured for a time instead, in windows of 300 ms\n" in done.err


def test_the_program_stands_for_perf_analyzer_under_any_name(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["/usr/bin/perf_analyzer", "--version"])
    assert perf_analyzer.main() == 0
    assert capsys.readouterr().err.startswith("Perf Analyzer Version ")
    monkeypatch.setattr(sys, "argv", ["/usr/bin/perf_analyzer", "--help"])
    assert perf_analyzer.main() == 0
    assert "--print-scenario" in capsys.readouterr().out


def test_a_link_named_mpiexec_takes_the_line_that_model_analyzer_starts(monkeypatch, capsys):
    line = "-n 1 --tag-output perf_analyzer --enable-mpi -m a --print-scenario : -n 1 perf_analyzer --enable-mpi -m b"
    monkeypatch.setattr(sys, "argv", ["/home/me/bin/mpiexec", "--allow-run-as-root", *line.split()])
    assert perf_analyzer.main() == 0
    scenario = yaml.safe_load(capsys.readouterr().out)
    assert [workload["name"] for workload in scenario["workloads"]] == ["a", "b"]


def test_a_composing_model_that_is_not_called_has_no_file_and_is_named(server, run, tmp_path):
    done = run(
        "-m", "simple", "-u", server.http, "--request-count", 10, "--input-data", "zero", "-f", "out.csv",
        "--bls-composing-models", "repeat_int32",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "perfkit: composing model repeat_int32: it answered no request during the load, and is left out" in done.err
    assert "Composing models" not in done.out
    assert [one.name for one in tmp_path.iterdir()] == ["out.csv"]


def test_what_v2_does_not_have_ends_with_one_sentence(run):
    done = run("-m", "m", "--service-kind", "tfserving", "-i", "grpc")
    assert done.code == 99
    assert done.err.splitlines()[-1].startswith("perfkit sends v2 requests")


SWEEP = (
    "--concurrency-range",
    "1:3",
    "--measurement-mode",
    "count_windows",
    "--measurement-request-count",
    20,
    "-s",
    9999,
    "--input-data",
    "zero",
)
FILES = ("-f", "out.csv", "--profile-export-file", "export.json")


class Ended(BaseException):
    """Stands for the end of the process."""


@pytest.fixture
def signal_at(monkeypatch):
    """Sends this process a signal as often as the command writes a line of stdout with this text."""

    def arrange(number, text):
        def write(line):
            sys.stdout.write(f"{line}\n")
            if text in line:
                signal.raise_signal(number)

        monkeypatch.setattr(perf_analyzer, "_write", write)

    return arrange


def test_ctrl_c_between_two_loads_ends_the_sweep_and_keeps_what_was_measured(server, run, signal_at, tmp_path):
    signal_at(signal.SIGINT, "Request concurrency: 2")
    done = run("-m", "simple", "-u", server.http, *SWEEP, *FILES)
    assert (done.code, "Traceback" in done.err) == (0, False)
    assert "Waiting for in-flight inferences to complete." in done.out
    assert len([line for line in done.out.splitlines() if line.startswith("Concurrency: ")]) == 1
    (row,) = csv.DictReader((tmp_path / "out.csv").read_text().splitlines())
    assert row["Concurrency"] == "1"
    (experiment,) = json.loads((tmp_path / "export.json").read_text())["experiments"]
    assert experiment["experiment"]["value"] == 1
    assert experiment["requests"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["export.json", "out.csv"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_a_signal_before_the_first_load_ends_the_command_before_anything_is_sent(server, run, signal_at, number, code):
    signal_at(number, "Measurement Settings")
    done = run("-m", "simple", "-u", server.http, "--input-data", "zero")
    assert (done.code, done.err) == (code, "")
    assert "Client" not in done.out


def test_the_second_ctrl_c_while_the_export_is_written_ends_the_command_at_once_without_it(server, run, signal_at, monkeypatch, tmp_path):
    left, add = [], ExportFile.add

    def interrupted_add(self, *arguments):
        add(self, *arguments)
        signal.raise_signal(signal.SIGINT)

    def end(code):
        left.append((code, sorted(path.name for path in tmp_path.iterdir())))
        raise Ended

    monkeypatch.setattr(ExportFile, "add", interrupted_add)
    monkeypatch.setattr("perfkit.cli.signals.os._exit", end)
    signal_at(signal.SIGINT, "Inferences/Second vs. ")
    with pytest.raises(Ended):
        run("-m", "simple", "-u", server.http, "--request-count", 20, *FILES)
    assert left == [(0, ["out.csv"])]


def test_a_csv_file_in_a_missing_folder_is_refused_before_anything_is_sent(run, tmp_path):
    done = run("-m", "simple", "-u", "127.0.0.1:9", "--input-data", "zero", "-f", "none/out.csv", "--profile-export-file", "export.json")
    assert (done.code, done.err) == (99, "error: -f none/out.csv: it cannot be written: No such file or directory\n")
    assert list(tmp_path.iterdir()) == []
