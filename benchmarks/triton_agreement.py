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
from typing import Any

from benchmarks.peers.install import peers_folder
from benchmarks.peers.server_process import PeerError
from benchmarks.peers.triton import running_triton
from benchmarks.processes import ROOT, run_perfkit, write_scenario
from benchmarks.report import Report, program_options
from perfkit.api_v2.client import make_client
from perfkit.clock import MonotonicClock
from perfkit.errors import PerfkitError
from perfkit.measurement.run_target import open_target
from perfkit.measurement.target_probe import probe
from perfkit.protocol.message import InferRequest, InferResponse
from perfkit.scenario.file import read_scenario
from perfkit.target.address import WireProtocol
from perfkit.target.started_server import bundled_server
from perfkit.transport.base import Outcome
from perfkit.transport.options import TransportOptions

Inputs = Mapping[str, Mapping[str, Any]]
_SHOWN_FAULTS = 5
ENGINES: tuple[tuple[WireProtocol, str], ...] = (("http", "wire"), ("http", "reference"), ("grpc", "wire"), ("grpc", "reference"))
BATCH_SIZES = (1, 2, 8)
"""Answers are compared for each; load uses the first."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A model, the inputs for load and comparison, and further inputs for comparison only."""

    model: str
    inputs: Inputs = dataclasses.field(default_factory=dict)
    further: tuple[Inputs, ...] = ()


def _identity(datatype: str, edges: Mapping[str, Any]) -> Case:
    random, none = ({"INPUT0": {"generate": kind, "shape": [size]}} for kind, size in (("random", 64), ("zeros", 0)))
    return Case(f"identity_{datatype}", random, ({"INPUT0": edges}, none))


_NAN, _INF = float("nan"), float("inf")
CASES = (
    Case("simple", further=({"INPUT0": {"value": [2**31 - 1, -(2**31)] * 8}, "INPUT1": {"value": [1, 1, -1, -1] * 4}},)),
    Case("simple_string", further=({"INPUT0": {"strings": ["-1", "2147483647", "007"]}, "INPUT1": {"strings": ["1", "-0"]}},)),
    _identity("fp16", {"value": [_NAN, _INF, -_INF, 0.0, -0.0, 2.0**-24, 2.0**-14 - 2.0**-24, 65504.0]}),
    _identity("int64", {"value": [-(2**63), 2**63 - 1, 2**53 + 1, -1, 0]}),
    _identity("bytes", {"strings": ["", "\0", "a\0b", "größer", "x" * 70_000], "shape": [5]}),
)


def scenario(model: str, inputs: Inputs, batch_size: int, seconds: float) -> dict[str, Any]:
    """A scenario without a URL, which the command line gives."""
    return {
        "target": {"model": model},
        "workload": {"batch_size": batch_size, "inputs": {name: dict(value) for name, value in inputs.items()}},
        "load": {"closed": {"concurrency": 4}},
        "measure": {"warmup": "500ms", "duration": f"{seconds}s", "repetitions": 1},
    }


def run_case(case: Case, settings: Sequence[str], seconds: float, folder: pathlib.Path) -> tuple[str, str]:
    """`perfkit run`: its counts for the table, and what is wrong with them, if anything."""
    file = write_scenario(folder, scenario(case.model, case.inputs, BATCH_SIZES[0], seconds))
    run = run_perfkit(file, *(f"--set={setting}" for setting in settings))
    if run.result is None:
        return f"exit code {run.exit_code}", f"exit code {run.exit_code}: {run.stderr.strip()}"
    requests = run.point["requests"]
    counts = f"{requests['sent']:,} sent, {requests['sent'] - requests['ok']:,} failed"
    if run.exit_code:
        return counts, f"exit code {run.exit_code}: {run.result['status_reason']}"
    return counts, "" if requests["sent"] == requests["ok"] > 0 else f"{requests}"


async def compare_answers(case: Case, servers: Sequence[Sequence[str]], folder: pathlib.Path) -> tuple[int, list[str]]:
    """The number of requests that both servers, given by their settings, were sent, and where their answers differ."""
    compared, faults = 0, list[str]()
    for number, inputs in enumerate((case.inputs, *case.further)):
        for batch_size in BATCH_SIZES:
            place = f"inputs {number}, batch {batch_size}"
            file = write_scenario(folder, scenario(case.model, inputs, batch_size, 1))
            try:
                (requests, ours), (their_requests, theirs) = [await _send(file, settings) for settings in servers]
            except PerfkitError as error:
                faults.append(f"{place}: {error}")
                continue
            if requests != their_requests:
                faults.append(f"{place}: the servers' metadata lead to different requests")
                continue
            compared += len(requests)
            for variant, pair in enumerate(zip(ours, theirs, strict=True)):
                faults += [f"{place}, request {variant}: {difference}" for difference in differences(*pair)]
    return compared, faults


def differences(first: InferResponse, second: InferResponse) -> list[str]:
    """The differences between the outputs of two answers, whatever their order."""
    outputs = [{output.name: (output.datatype, list(output.shape), bytes(output.raw)) for output in one.outputs} for one in (first, second)]
    if outputs[0].keys() != outputs[1].keys():
        return [f"only one server returns {', '.join(sorted(outputs[0].keys() ^ outputs[1].keys()))}"]
    return [f"{name}: {value[0].value} {value[1]} and {outputs[1][name][0].value} {outputs[1][name][1]}, or other bytes"
            for name, value in outputs[0].items() if value != outputs[1][name]]  # fmt: skip


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


async def check(page: Report, case: Case, triton_urls: Mapping[str, str], seconds: float) -> list[str]:
    """A row for each protocol and engine; the differences."""
    found = list[str]()
    async with bundled_server(case.model, device="cpu", threads=1, cpus=(), on_line=_ignore) as ours:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for protocol, engine in ENGINES:
                servers = [(f"target.url={urls[protocol]}", f"target.engine={engine}") for urls in (triton_urls, ours.urls)]
                runs = [await asyncio.to_thread(run_case, case, settings, seconds, folder) for settings in servers]
                compared, faults = await compare_answers(case, servers, folder)
                faults = [f"`perfkit run`: {fault}" for _, fault in runs if fault] + faults
                page.judged_row(not faults, case.model, protocol, engine, *(counts for counts, _ in runs), compared)
                more = [f"and {len(faults) - _SHOWN_FAULTS} more"] if len(faults) > _SHOWN_FAULTS else []
                found += [f"- {case.model}, {protocol}, {engine}: {fault}" for fault in (*faults[:_SHOWN_FAULTS], *more)]
    return found


def main() -> int:
    """Prints the table; the exit code is 1 if anything failed or differs."""
    options = program_options(
        __doc__, out="triton-agreement", models=([case.model for case in CASES], "which models"), seconds=2.0, peers=pathlib.Path
    )
    os.chdir(ROOT)  # the bundled server of this checkout is found from here, whether perfkit is installed or not
    try:
        with running_triton(peers_folder(options.peers)) as triton:
            page, found = Report(options.out, f"The bundled server compared with Triton {triton.version}"), list[str]()
            page.add(
                f"Triton runs the same models on its Python backend. `perfkit run`: concurrency 4, {options.seconds:g} s. Then every request of",
                "the scenario, and of scenarios with extreme values of the datatype, is sent to both servers, at each batch size:",
                "outputs agree if name, datatype, shape and all bytes are equal.",
                "",
            )
            page.table("model", "protocol", "engine", "run on Triton", "run on the bundled server", ">requests compared", "answers agree")
            for case in (case for case in CASES if case.model in options.models):
                urls = {protocol: triton.url(protocol) for protocol in ("http", "grpc")}
                found += asyncio.run(check(page, case, urls, options.seconds))
    except (PeerError, PerfkitError) as error:
        sys.stderr.write(f"triton_agreement: {error}\n")
        return 1
    if found:
        page.add("", "Differences:", "", *found)
    return page.write()


if __name__ == "__main__":
    sys.exit(main())
