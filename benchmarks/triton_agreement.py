"""Compares the bundled server's answers with those of a real Triton: perfkit's runs, and the same requests to both.

    python -m benchmarks.triton_agreement [--models simple …] [--seconds 2] [--peers FOLDER] [--out reports/triton-agreement.md]

Triton serves the models of `benchmarks/peers/triton_models`; `benchmarks/peers/install.py` installs it. For each model,
protocol and engine, `perfkit run` must end with exit code 0 and without a failed request on both servers. Then every request of
that scenario, and of scenarios with extreme values of the datatype, is sent to both, and the outputs must agree in name,
datatype, shape and bytes. The exit code is 1 otherwise.
"""

import asyncio
import contextlib
import dataclasses
import os
import pathlib
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from benchmarks.peers.install import peers_folder
from benchmarks.peers.server_process import PeerError
from benchmarks.peers.triton import Triton, running_triton
from benchmarks.processes import ROOT, run_perfkit, write_scenario
from benchmarks.report import option_parser, table_head, table_row, write_report, yes_no
from perfkit.api_v2.client import make_client
from perfkit.clock import MonotonicClock
from perfkit.errors import PerfkitError
from perfkit.measurement.run_target import open_target
from perfkit.measurement.target_probe import probe
from perfkit.protocol.message import InferRequest, InferResponse
from perfkit.scenario.file import read_scenario
from perfkit.target.address import WireProtocol
from perfkit.target.bundled_server import bundled_server
from perfkit.transport.base import Outcome
from perfkit.transport.options import TransportOptions

Inputs: TypeAlias = Mapping[str, Mapping[str, Any]]
Urls: TypeAlias = Mapping[WireProtocol, str]

_SHOWN_FAULTS = 5

ENGINES: tuple[tuple[WireProtocol, str], ...] = (("http", "wire"), ("http", "reference"), ("grpc", "wire"), ("grpc", "reference"))


@dataclasses.dataclass(frozen=True)
class Case:
    """A model, the inputs for load and comparison, and further inputs for comparison only."""

    model: str
    inputs: Inputs = dataclasses.field(default_factory=dict)
    further: tuple[Inputs, ...] = ()
    batch_sizes: tuple[int, ...] = (1, 2, 8)
    """Answers are compared for each; load uses the first."""


def _identity(datatype: str, edges: Mapping[str, Any]) -> Case:
    return Case(
        f"identity_{datatype}",
        {"INPUT0": {"generate": "random", "shape": [64]}},
        ({"INPUT0": edges}, {"INPUT0": {"generate": "zeros", "shape": [0]}}),
    )


_NAN, _INF = float("nan"), float("inf")
CASES = (
    Case("simple", further=({"INPUT0": {"value": [2**31 - 1, -(2**31)] * 8}, "INPUT1": {"value": [1, 1, -1, -1] * 4}},)),
    Case("simple_string", further=({"INPUT0": {"strings": ["-1", "2147483647", "007"]}, "INPUT1": {"strings": ["1", "-0"]}},)),
    _identity("fp16", {"value": [_NAN, _INF, -_INF, 0.0, -0.0, 2.0**-24, 2.0**-14 - 2.0**-24, 65504.0]}),
    _identity("int64", {"value": [-(2**63), 2**63 - 1, 2**53 + 1, -1, 0]}),
    _identity("bytes", {"strings": ["", "\0", "a\0b", "größer", "x" * 70_000], "shape": [5]}),
)


@dataclasses.dataclass
class Row:
    """The findings for one model, protocol and engine."""

    model: str
    protocol: WireProtocol
    engine: str
    runs: list[str] = dataclasses.field(default_factory=list)
    compared: int = 0
    faults: list[str] = dataclasses.field(default_factory=list)

    def shown_faults(self) -> list[str]:
        """The first faults and the number of the others: a wrong model is wrong in every request."""
        more = len(self.faults) - _SHOWN_FAULTS
        return [*self.faults[:_SHOWN_FAULTS], *([f"and {more} more"] if more > 0 else [])]

    def line(self) -> str:
        """The row as Markdown."""
        return table_row(self.model, self.protocol, self.engine, *self.runs, self.compared, yes_no(not self.faults))


async def check(case: Case, protocol: WireProtocol, engine: str, servers: Mapping[str, Urls], seconds: float, folder: pathlib.Path) -> Row:
    """Runs perfkit on both servers, and compares their answers."""
    row = Row(case.model, protocol, engine)
    settings = {name: (f"target.url={urls[protocol]}", f"target.engine={engine}") for name, urls in servers.items()}
    for name in servers:
        file = write_scenario(folder, scenario(case.model, case.inputs, case.batch_sizes[0], seconds))
        counts, fault = await asyncio.to_thread(_run, file, settings[name])
        row.runs.append(counts)
        row.faults += [f"`perfkit run` on {name}: {fault}"] if fault else []
    for number, inputs in enumerate((case.inputs, *case.further)):
        for batch_size in case.batch_sizes:
            file = write_scenario(folder, scenario(case.model, inputs, batch_size, seconds))
            try:
                (requests, ours), (their_requests, theirs) = [await _send(file, settings[name]) for name in servers]
            except PerfkitError as error:
                row.faults.append(f"inputs {number}, batch {batch_size}: {error}")
                continue
            if requests != their_requests:
                row.faults.append(f"inputs {number}, batch {batch_size}: the servers' metadata lead to different requests")
                continue
            row.compared += len(requests)
            for variant, pair in enumerate(zip(ours, theirs, strict=True)):
                row.faults += [f"inputs {number}, batch {batch_size}, request {variant}: {difference}" for difference in differences(*pair)]
    return row


def differences(first: InferResponse, second: InferResponse) -> list[str]:
    """The differences between the outputs of two answers, whatever their order."""
    outputs = [{output.name: output for output in response.outputs} for response in (first, second)]
    differing = []
    for name in sorted({*outputs[0], *outputs[1]}):
        first_output, second_output = outputs[0].get(name), outputs[1].get(name)
        if first_output is None or second_output is None:
            differing.append(f"only one server returns {name}")
            continue
        (datatype, shape, raw), (other_datatype, other_shape, other_raw) = (
            (output.datatype, list(output.shape), bytes(output.raw)) for output in (first_output, second_output)
        )
        if (datatype, shape) != (other_datatype, other_shape):
            differing.append(f"{name} is {datatype.value} {shape} and {other_datatype.value} {other_shape}")
        elif raw != other_raw:
            differing.append(f"the bytes of {name} differ")
    return differing


def scenario(model: str, inputs: Inputs, batch_size: int, seconds: float) -> dict[str, Any]:
    """A scenario without a URL, which the command line gives."""
    return {
        "target": {"model": model},
        "workload": {"batch_size": batch_size, "inputs": {name: dict(value) for name, value in inputs.items()}},
        "load": {"closed": {"concurrency": 4}},
        "measure": {"warmup": "500ms", "duration": f"{seconds}s", "repetitions": 1},
    }


def _run(file: pathlib.Path, settings: Sequence[str]) -> tuple[str, str]:
    """`perfkit run`: its counts for the table, and what is wrong with them, if anything."""
    run = run_perfkit(file, *(f"--set={setting}" for setting in settings))
    code = f"exit code {run.exit_code}"
    if run.result is None:
        return code, f"{code}: {run.stderr.strip()}"
    requests = run.point["requests"]
    counts = f"{requests['sent']:,} sent, {requests['sent'] - requests['ok']:,} failed"
    if run.exit_code:
        return counts, f"{code}: {run.result['status_reason']}"
    return counts, "" if requests["sent"] == requests["ok"] > 0 else f"{requests}"


async def _send(file: pathlib.Path, settings: Sequence[str]) -> tuple[tuple[InferRequest, ...], list[InferResponse]]:
    """Sends each request that `perfkit run` would make of a scenario once. Returns the requests and their answers."""
    loaded = read_scenario(file, settings)
    target = loaded.scenario.target
    async with contextlib.AsyncExitStack() as stack:
        opened = await stack.enter_async_context(open_target(loaded, (), _ignore, pathlib.Path(os.devnull)))
        (address,) = opened.addresses.values()
        client = make_client(address, TransportOptions(engine=target.engine, timeout_ns=target.timeout_ns), MonotonicClock())
        stack.push_async_callback(client.aclose)
        requests = (await probe(client, address, loaded, MonotonicClock())).requests
        responses = []
        for request in requests:
            reply = await client.transport.send(client.prepare(request))
            if reply.outcome not in (Outcome.OK, Outcome.REJECTED):
                raise PerfkitError(f"{address}: {reply.outcome.value}: {reply.error}")
            responses.append(client.decode(reply))  # raises the server's error message if it rejected the request
    return requests, responses


def _ignore(_: str) -> None:
    """Ignores a line of the bundled server's stderr."""


async def compare(cases: Sequence[Case], triton: Triton, seconds: float) -> list[Row]:
    """All rows, each printed when it is complete."""
    rows = []
    triton_urls: Urls = {"http": triton.url("http"), "grpc": triton.url("grpc")}
    for case in cases:
        async with bundled_server(case.model, device="cpu", threads=1, cpus=(), on_line=_ignore) as ours:
            with tempfile.TemporaryDirectory() as folder:
                for protocol, engine in ENGINES:
                    servers = {"Triton": triton_urls, "the bundled server": ours.urls}
                    rows.append(await check(case, protocol, engine, servers, seconds, pathlib.Path(folder)))
                    print(rows[-1].line(), *(f"  {fault}" for fault in rows[-1].shown_faults()), sep="\n", flush=True)
    return rows


def page(rows: Sequence[Row], head: Sequence[str], triton_version: str, seconds: float) -> list[str]:
    """The report."""
    text = [
        f"# The bundled server compared with Triton {triton_version}", "",
        f"Triton runs the same models on its Python backend. `perfkit run`: concurrency 4, {seconds:g} s. Then every request of",
        "the scenario, and of scenarios with extreme values of the datatype, is sent to both servers, at each batch size:",
        "outputs agree if name, datatype, shape and all bytes are equal.", "",
        *head, *(row.line() for row in rows),
    ]  # fmt: skip
    faults = [f"- {row.model}, {row.protocol}, {row.engine}: {fault}" for row in rows for fault in row.shown_faults()]
    return [*text, *(["", "Differences:", "", *faults] if faults else [])]


def main() -> int:
    """Prints the table; the exit code is 1 if anything failed or differs."""
    parser = option_parser(__doc__, out=ROOT / "reports" / "triton-agreement.md")
    known = [case.model for case in CASES]
    parser.add_argument("--models", nargs="+", choices=known, default=known, metavar="MODEL", help=f"default: {' '.join(known)}")
    parser.add_argument("--seconds", type=float, default=2, help="window of each run (default %(default)s)")
    parser.add_argument("--peers", type=pathlib.Path, help="folder of the peers")
    options = parser.parse_args()
    os.chdir(ROOT)  # the bundled server of this checkout is found from here, whether perfkit is installed or not
    head = table_head("model", "protocol", "engine", "run on Triton", "run on the bundled server", ">requests compared", "answers agree")
    print("\n".join(head), flush=True)
    try:
        with running_triton(peers_folder(options.peers)) as triton:
            rows = asyncio.run(compare([case for case in CASES if case.model in options.models], triton, options.seconds))
    except (PeerError, PerfkitError) as error:
        sys.stderr.write(f"triton_agreement: {error}\n")
        return 1
    write_report(options.out, page(rows, head, triton.version, options.seconds))
    return 1 if any(row.faults for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
