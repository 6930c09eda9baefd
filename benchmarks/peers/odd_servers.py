"""Perfkit beside perf_analyzer on odd servers and models: wherever perf_analyzer measures, perfkit does.

    python -m benchmarks.peers.odd_servers [--case "sizes of -1" …] [--peers FOLDER] [--out reports/odd-servers.md]

The models run on a real Triton with its Python backend, or on the bundled server; the odd servers are a proxy before Triton (`odd_proxy`). Each case
is the smallest run of three programs: perf_analyzer, `perfkit perf-analyzer` with the same options, and `perfkit run` with a scenario of the
same requests. A program measures if it ends with exit code 0, a rate above 0 and no failed request. The exit code is 1 if perf_analyzer
measures where perfkit does not. Takes about ten minutes.
"""

import contextlib
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.peers.install import peers_folder, perf_analyzer_path
from benchmarks.peers.odd_proxy import Oddness, odd_proxy
from benchmarks.peers.server_process import PeerError
from benchmarks.peers.triton import TRAFFIC_MODELS, running_triton
from benchmarks.processes import ROOT, run_perfkit, running_server
from benchmarks.report import Report, describe_machine, program_options, yes_no

PROGRAM = pathlib.Path(__file__).with_name("triton_declared_models") / "model.py"
REQUESTS = 10
_TIMEOUT_S = 90
_REASON_CHARACTERS = 160
_PROGRAMS = ("perf_analyzer", "perfkit perf-analyzer", "perfkit run")
_BOTH, _GRPC, _HTTP = ("http", "grpc"), ("grpc",), ("http",)
_DATATYPES = ("BOOL", "UINT8", "UINT16", "INT8", "INT32", "INT64", "FP32", "FP64")


def _tensor(name: str, datatype: str, *sizes: int, more: str = "") -> str:
    return f'{{ name: "{name}" data_type: TYPE_{datatype} dims: [{", ".join(map(str, sizes))}] {more} }}'


def _model(inputs: str, output: str = _tensor("Y", "FP32", 4), more: str = "", batches: int = 8, **parameters: object) -> str:
    declared = "".join(f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}\n' for key, value in parameters.items())
    return f"max_batch_size: {batches}\ninput [ {inputs} ]\noutput [ {output} ]\n{more}\n{declared}"


_SEQUENCE = """sequence_batching { control_input [
  { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] } ] },
  { name: "END" control [ { kind: CONTROL_SEQUENCE_END int32_false_true: [0, 1] } ] } ] }"""
_ENSEMBLE = """ensemble_scheduling { step [
  { model_name: "plain" model_version: -1 input_map { key: "X" value: "X" } output_map { key: "Y" value: "between" } },
  { model_name: "plain" model_version: -1 input_map { key: "X" value: "between" } output_map { key: "Y" value: "Y" } } ] }"""
_X = _tensor("X", "FP32", 4)
MODELS: Mapping[str, str] = {
    "plain": _model(_X),
    "any_shape": _model(_tensor("X", "FP32", -1, -1), _tensor("Y", "FP32", -1), batches=0),
    "first_size": _model(_tensor("X", "FP32", -1, 8), _tensor("Y", "FP32", -1, 8), batches=0),
    "any_text": _model(_tensor("X", "STRING", -1), _tensor("Y", "STRING", -1)),
    "half": _model(_tensor("X", "FP16", 4), _tensor("Y", "FP16", 4)),
    "many": _model(", ".join(_tensor(f"X_{name}", name, 3) for name in _DATATYPES)),
    "optional": _model(f"{_X}, {_tensor('Z', 'FP32', 4, more='optional: true')}"),
    "ragged": _model(_tensor("X", "FP32", -1, more="allow_ragged_batch: true"), more="dynamic_batching { }"),
    "scalar": _model(_tensor("X", "FP32", 1, more="reshape { shape: [ ] }"), _tensor("Y", "FP32", 1, more="reshape { shape: [ ] }")),
    "empty": _model(_X, _tensor("Y", "FP32", -1), length=0),
    "large": _model(_X, _tensor("Y", "FP32", 8 << 20)),
    "slow": _model(_X, seconds=0.6),
    "decoupled": _model(_X, more="model_transaction_policy { decoupled: true }", batches=0, responses=3),
    "sequence": _model(_X, more=_SEQUENCE),
    "pipeline": _model(_X, more=f'platform: "ensemble"\n{_ENSEMBLE}'),
    "versions": _model(_X, more="version_policy { all { } }"),
    "odd.name-1": _model(_X),
    "batcher": _model(_X, more="dynamic_batching { preferred_batch_size: [4, 8] max_queue_delay_microseconds: 500 }"),
    "broken": _model(_X, is_broken=1),
}


class Case(NamedTuple):
    """Requests for a model, as perf_analyzer's options and as sections of a scenario."""

    title: str
    model: str = "plain"
    shapes: Mapping[str, Sequence[int]] = {}
    """Given where the model has sizes of -1."""
    options: Sequence[str] = ()
    scenario: Mapping[str, Any] = {}
    target: Mapping[str, Any] = {}
    workload: Mapping[str, Any] = {}
    protocols: Sequence[str] = _BOTH
    requests: int = REQUESTS
    oddness: Oddness | None = None
    """The oddness of a proxy before the server, over HTTP."""


ON_TRITON = (
    Case("sizes of -1", "any_shape", {"X": (3, 5)}),
    Case("an input without elements", "any_shape", {"X": (0, 5)}),
    Case("a first size of -1 that is no batch", "first_size", {"X": (3, 8)}),
    Case("BYTES of any length", "any_text", {"X": (4,)}),
    Case("FP16", "half"),
    Case("BF16", "identity_bf16", {"INPUT0": (16,)}),
    Case("batches of four", options=("-b", "4"), workload={"batch_size": 4}),
    Case("eight inputs, each of another datatype", "many"),
    Case("an optional input", "optional"),
    Case("ragged batches", "ragged", {"X": (7,)}),
    Case("a scalar in batches", "scalar"),
    Case("an output without elements", "empty"),
    Case("an output of 32 MiB", "large"),
    Case("600 ms for an answer", "slow", requests=3),
    Case("three responses to a request", "decoupled", options=("--streaming",), scenario={"stream": {}}, protocols=_GRPC),
    Case("sequences", "sequence", options=("--sequence-length", "4"), scenario={"sequences": {"length": 4}}),
    Case("an ensemble", "pipeline"),
    Case("version 3 of two", "versions", options=("-x", "3"), target={"version": "3"}),
    Case("a name with a dot and a dash", "odd.name-1"),
    Case("preferred batch sizes", "batcher"),
    Case(
        "system shared memory",
        options=("--shared-memory", "system", "--output-shared-memory-size", "1024"),
        scenario={"shared_memory": "system"},
    ),
    Case("compressed calls", options=("--grpc-compression-algorithm", "gzip"), target={"compression": "gzip"}, protocols=_GRPC),
    Case("a parameter of the request", options=("--request-parameter", "color:red:string"), workload={"parameters": {"color": "red"}}, protocols=_GRPC),
)  # fmt: skip
ON_BROKEN = (Case("another model that is broken"),)
_TOKEN = "Bearer odd"  # noqa: S105 - of a proxy of this program
BEHIND_PROXY = tuple(
    Case(title, oddness=oddness, protocols=_HTTP, **more)
    for title, oddness, more in (
        ("a path before /v2", Oddness(base_path="/models/a"), {}),
        ("3 s for each description", Oddness(description_s=3.0), {}),
        ("a server that is not ready, with a model that is", Oddness(not_ready=True), {}),
        ("no configuration of models", Oddness(not_found=("/config",)), {}),
        ("no statistics", Oddness(not_found=("/stats",)), {}),
        ("no metadata of the server", Oddness(not_found=("/v2",)), {}),
        ("compressed answers", Oddness(gzips=True), {"target": {"compression": "gzip"}}),
        ("answers in chunks", Oddness(is_chunked=True), {}),
        ("a connection for each request", Oddness(closes=True), {}),
        (
            "a token",
            Oddness(token=_TOKEN),
            {"options": ("-H", f"authorization: {_TOKEN}"), "target": {"headers": {"authorization": _TOKEN}}},
        ),
    )
)
ON_BUNDLED = (
    Case("two inputs", "simple"),
    Case("batches of four", "simple", options=("-b", "4"), workload={"batch_size": 4}),
    Case("numbers as BYTES", "simple_string", options=("--string-data", "7"), workload={"inputs": {name: {"strings": ["7"] * 16, "shape": [16]} for name in ("INPUT0", "INPUT1")}}),
    Case("BYTES of any length", "identity_bytes", {"INPUT0": (4,)}),
    Case("FP16", "identity_fp16", {"INPUT0": (4,)}),
    Case("BF16", "identity_bf16", {"INPUT0": (4,)}),
    Case("sequences", "simple_sequence", options=("--sequence-length", "4"), scenario={"sequences": {"length": 4}}),
    Case("responses to a request", "repeat_int32", {"IN": (2,), "DELAY": (2,)}, ("--streaming", "--input-data", "zero"), {"stream": {}}, workload={"inputs": {"IN": {"generate": "zeros", "shape": [2]}, "DELAY": {"generate": "zeros", "shape": [2]}, "WAIT": {"generate": "zeros"}}}, protocols=_GRPC),
    Case("3 s for each description", "simple", oddness=Oddness(description_s=3.0), protocols=_HTTP),
)  # fmt: skip


class Measured(NamedTuple):
    """What a program measured: the rate, or why it has none."""

    per_s: float = 0.0
    reason: str = ""

    def __str__(self) -> str:
        return "yes" if self.per_s else self.reason


def write_models(folder: pathlib.Path, names: Sequence[str]) -> None:
    """Writes a repository with these models."""
    for name in names:
        if name not in MODELS:
            shutil.copytree(TRAFFIC_MODELS / name, folder / name)
            continue
        for version in ("1", "3") if name == "versions" else ("1",):
            (folder / name / version).mkdir(parents=True)
            if "ensemble" not in MODELS[name]:
                shutil.copy(PROGRAM, folder / name / version)
        kind = "" if "ensemble" in MODELS[name] else 'backend: "python"\ninstance_group [ { kind: KIND_CPU count: 1 } ]\n'
        (folder / name / "config.pbtxt").write_text(f'name: "{name}"\n{kind}{MODELS[name]}', encoding="utf-8")


def run_analyzer(program: Sequence[str], case: Case, protocol: str, address: str) -> Measured:
    """A program with perf_analyzer's options."""
    shapes = [word for name, sizes in case.shapes.items() for word in ("--shape", f"{name}:{','.join(map(str, sizes))}")]
    load = ["--concurrency-range", "1", "--request-count", str(case.requests)]
    command = [*program, "-m", case.model, "-i", protocol, "-u", address, *load, *shapes, *case.options]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return Measured(reason=f"no end within {_TIMEOUT_S} s")
    found = re.search(r"Throughput: ([0-9.]+) infer/sec", done.stdout)
    failed = re.search(r"Failed Request Count: ([1-9]\d*)", done.stdout)
    if done.returncode == 0 and found and float(found[1]) and not failed:
        return Measured(float(found[1]))
    return Measured(reason=_reason(f"exit code {done.returncode}", f"{done.stdout}\n{done.stderr}"))


def run_own(case: Case, protocol: str, address: str) -> Measured:
    """`perfkit run` with the same requests."""
    inputs = {name: {"generate": "random", "shape": list(sizes)} for name, sizes in case.shapes.items()}
    scenario = {
        "target": {"url": f"{protocol}://{address}", "model": case.model, **case.target},
        "workload": {**({"inputs": inputs} if inputs else {}), **case.workload},
        "load": {"closed": {"concurrency": 1}},
        "measure": {"requests": case.requests, "warmup": "0s", "repetitions": 1},
        "telemetry": False,
        **case.scenario,
    }
    run = run_perfkit(scenario, quiet=("--no-report",))
    if run.result is None or run.exit_code not in (0, 5):  # 5: the figures are not valid on a busy machine
        return Measured(reason=_reason(f"exit code {run.exit_code}", run.stderr))
    requests = run.point["requests"]
    if requests["ok"] == requests["sent"] == requests["scheduled"] > 0:
        return Measured(run.point["throughput_per_s"])
    return Measured(reason=f"{requests['ok']} of {requests['scheduled']} requests were answered")


def _reason(code: str, output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    told = next((line for line in reversed(lines) if re.search(r"rror|fail|perfkit", line)), lines[-1] if lines else "no output")
    return f"{code}: {told.replace('|', '/')[:_REASON_CHARACTERS]}"


@contextlib.contextmanager
def addressed(case: Case, protocol: str, ports: Mapping[str, int]) -> Iterator[str]:
    """The address that programs are given, without a scheme."""
    if case.oddness is None:
        yield f"127.0.0.1:{ports[protocol]}"
        return
    with odd_proxy(ports[protocol], case.oddness) as port:
        yield f"127.0.0.1:{port}{case.oddness.base_path}"


def compare(report: Report, analyzer: pathlib.Path, title: str, cases: Sequence[Case], ports: Mapping[str, int]) -> None:
    """A row for each case and protocol."""
    for case in cases:
        for protocol in case.protocols:
            with addressed(case, protocol, ports) as address:
                theirs = run_analyzer([str(analyzer)], case, protocol, address)
                own = [
                    run_analyzer([sys.executable, "-m", "perfkit", "perf-analyzer"], case, protocol, address),
                    run_own(case, protocol, address),
                ]
            report.judged_row(all(one.per_s for one in own) or not theirs.per_s, title, case.title, protocol, theirs, *own)


def main() -> int:
    """Runs the cases."""
    options = program_options(__doc__, out="odd-servers", peers=peers_folder(), case=([""], "titles of cases; all without it"))
    wanted = {title for title in options.case if title}

    def chosen(cases: Sequence[Case]) -> list[Case]:
        return [case for case in cases if not wanted or case.title in wanted]

    report = Report(options.out, "Odd servers and models: perfkit beside perf_analyzer")
    machine, analyzer = describe_machine(), perf_analyzer_path(options.peers)
    try:
        with tempfile.TemporaryDirectory(prefix="perfkit-odd-") as name:
            sound, broken = pathlib.Path(name, "sound"), pathlib.Path(name, "broken")
            write_models(sound, [*(model for model in MODELS if model != "broken"), "identity_bf16"])
            write_models(broken, ["plain", "broken"])
            with running_triton(options.peers, models=sound) as triton:
                report.add(
                    f"`python -m benchmarks.peers.odd_servers`. {machine} Triton {triton.version} with models of its Python backend, over the loopback; "
                    f"{REQUESTS} requests one after the other, in each case by perf_analyzer, by `perfkit perf-analyzer` with the same options, and by `perfkit run`.",
                    "",
                    "*Yes*: the program ended with exit code 0, a rate above 0 and no failed request; otherwise the cell has what it said. Ten requests are too few to compare rates.",
                    "",
                )
                report.table("server", "case", "protocol", *_PROGRAMS, "perfkit measures where perf_analyzer does")
                ports = {"http": triton.http_port, "grpc": triton.grpc_port}
                compare(report, analyzer, "Triton", chosen(ON_TRITON), ports)
                compare(report, analyzer, "a proxy before Triton", chosen(BEHIND_PROXY), ports)
            if cases := chosen(ON_BROKEN):
                goes_on, ready_path = ["--exit-on-error=false"], "v2/models/plain/ready"
                with running_triton(options.peers, models=broken, options=goes_on, ready_path=ready_path) as triton:
                    compare(report, analyzer, "Triton", cases, {"http": triton.http_port, "grpc": triton.grpc_port})
        with running_server(
            "--threads=1", "--device=cpu", *(f"--model={model}" for model in dict.fromkeys(case.model for case in ON_BUNDLED))
        ) as server:
            ports = {protocol: int(server.ready[f"{protocol}_port"]) for protocol in _BOTH}
            compare(report, analyzer, "the bundled server", chosen(ON_BUNDLED), ports)
    except (PeerError, RuntimeError) as error:
        sys.exit(f"odd_servers: {error}")
    report.add("", f"Perfkit measures wherever perf_analyzer does: {yes_no(report.is_met)}.")
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
