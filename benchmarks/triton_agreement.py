"""Whether the bundled server answers as real Triton does: perfkit's runs, and the same requests, against both.

    python -m benchmarks.triton_agreement [--models simple …] [--seconds 2] [--peers FOLDER] [--out reports/triton-agreement.md]

Triton serves the models of `benchmarks/peers/triton_models`; `benchmarks/peers/install.py` installs it. For each model,
over each protocol and with each engine, `perfkit run` has to end with exit code 0 and without a failed request on
either server. Then every request of that scenario, and of further ones with values at the edges of the datatype, is
sent to both, and the outputs have to agree in name, datatype, shape and bytes.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import json
import os
import pathlib
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import yaml

from benchmarks.peers.install import peers_folder
from benchmarks.peers.triton import Triton, TritonError, running_triton
from perfkit.clock import MonotonicClock
from perfkit.errors import PerfkitError
from perfkit.measurement.target_probe import open_target, probe
from perfkit.protocol.message import InferRequest, InferResponse
from perfkit.scenario.file import read_scenario
from perfkit.target.address import WireProtocol
from perfkit.target.bundled_server import bundled_server
from perfkit.transport.base import Outcome
from perfkit.transport.factory import make_transport
from perfkit.transport.options import TransportOptions

ROOT = pathlib.Path(__file__).parents[1]
Inputs: TypeAlias = Mapping[str, Mapping[str, Any]]
Urls: TypeAlias = Mapping[WireProtocol, str]

_TOLD_FAULTS = 5

WAYS: tuple[tuple[WireProtocol, str], ...] = (("http", "wire"), ("http", "reference"), ("grpc", "wire"), ("grpc", "reference"))


@dataclasses.dataclass(frozen=True)
class Case:
    """A model: the inputs that load is made of, and those of further requests that are compared."""

    model: str
    inputs: Inputs = dataclasses.field(default_factory=dict)
    further: tuple[Inputs, ...] = ()
    batch_sizes: tuple[int, ...] = (1, 2, 8)
    """Each is compared; load is sent with the first."""


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
    """What was seen of one model over one protocol with one engine."""

    model: str
    protocol: WireProtocol
    engine: str
    runs: list[str] = dataclasses.field(default_factory=list)
    compared: int = 0
    faults: list[str] = dataclasses.field(default_factory=list)

    def told_faults(self) -> list[str]:
        """The first faults, and how many more there are: a model that is wrong is wrong in every request."""
        more = len(self.faults) - _TOLD_FAULTS
        return [*self.faults[:_TOLD_FAULTS], *([f"and {more} more"] if more > 0 else [])]

    def line(self) -> str:
        """The row as Markdown."""
        agreed = "no" if self.faults else "yes"
        return f"| {self.model} | {self.protocol} | {self.engine} | {' | '.join(self.runs)} | {self.compared} | {agreed} |"


async def judge(case: Case, protocol: WireProtocol, engine: str, servers: Mapping[str, Urls], seconds: float, folder: pathlib.Path) -> Row:
    """Runs and compares."""
    row = Row(case.model, protocol, engine)
    settings = {name: (f"target.url={urls[protocol]}", f"target.engine={engine}") for name, urls in servers.items()}
    for name in servers:
        file = write_scenario(folder, case.model, case.inputs, case.batch_sizes[0], seconds)
        said, fault = await _run(file, settings[name])
        row.runs.append(said)
        row.faults += [f"`perfkit run` on {name}: {fault}"] if fault else []
    for number, inputs in enumerate((case.inputs, *case.further)):
        for batch_size in case.batch_sizes:
            file = write_scenario(folder, case.model, inputs, batch_size, seconds)
            try:
                (requests, ours), (their_requests, theirs) = [await _ask(file, settings[name]) for name in servers]
            except PerfkitError as error:
                row.faults.append(f"inputs {number}, batch {batch_size}: {error}")
                continue
            if requests != their_requests:
                row.faults.append(f"inputs {number}, batch {batch_size}: the servers' metadata make different requests")
                continue
            row.compared += len(requests)
            for variant, pair in enumerate(zip(ours, theirs, strict=True)):
                row.faults += [f"inputs {number}, batch {batch_size}, request {variant}: {one}" for one in differences(*pair)]
    return row


def differences(first: InferResponse, second: InferResponse) -> list[str]:
    """Where the outputs of two answers differ, in any order that they stand in."""
    outputs = [{output.name: output for output in response.outputs} for response in (first, second)]
    found = []
    for name in sorted({*outputs[0], *outputs[1]}):
        one, other = outputs[0].get(name), outputs[1].get(name)
        if one is None or other is None:
            found.append(f"only one of them answers {name}")
        elif (one.datatype, one.shape) != (other.datatype, other.shape):
            found.append(f"{name} is {one.datatype.value} {list(one.shape)} and {other.datatype.value} {list(other.shape)}")
        elif bytes(one.raw) != bytes(other.raw):
            found.append(f"the bytes of {name} differ")
    return found


def write_scenario(folder: pathlib.Path, model: str, inputs: Inputs, batch_size: int, seconds: float) -> pathlib.Path:
    """The scenario's file, whose target the command line names."""
    document = {
        "target": {"model": model},
        "workload": {"batch_size": batch_size, "inputs": {name: dict(value) for name, value in inputs.items()}},
        "load": {"closed": {"concurrency": 4}},
        "measure": {"warmup": "500ms", "duration": f"{seconds}s", "repetitions": 1},
    }
    file = folder / "agreement.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return file


async def _run(file: pathlib.Path, settings: Sequence[str]) -> tuple[str, str]:
    """`perfkit run`: what it counted, for the table, and what is wrong with that."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["-m", "perfkit", "run", str(file), "--quiet", f"--out={folder}/out", *(f"--set={one}" for one in settings)]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(sys.executable, *command, cwd=ROOT, stdout=pipe, stderr=pipe)
        _, said = await process.communicate()
        document = _read_result(pathlib.Path(folder, "out", "result.json"))
    code = f"exit code {process.returncode}"
    if document is None:
        return code, f"{code}: {said.decode(errors='replace').strip()}"
    requests = document["points"][0]["requests"]
    counted = f"{requests['sent']:,} sent, {requests['sent'] - requests['ok']:,} failed"
    if process.returncode:
        return counted, f"{code}: {document['status_reason']}"
    return counted, "" if requests["sent"] == requests["ok"] > 0 else f"{requests}"


def _read_result(file: pathlib.Path) -> dict[str, Any] | None:
    """A result; None where nothing was measured, so that there is none."""
    if not file.exists():
        return None
    document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return document


async def _ask(file: pathlib.Path, settings: Sequence[str]) -> tuple[tuple[InferRequest, ...], list[InferResponse]]:
    """The requests of a scenario, as `perfkit run` makes them, each sent once, and their answers."""
    loaded = read_scenario(file, settings)
    target = loaded.scenario.target
    async with contextlib.AsyncExitStack() as stack:
        opened = await stack.enter_async_context(open_target(loaded, (), _ignore))
        (address,) = opened.addresses.values()
        transport = make_transport(address, TransportOptions(engine=target.engine, timeout_ns=target.timeout_ns), MonotonicClock())
        stack.push_async_callback(transport.aclose)
        requests = (await probe(transport, address, loaded)).requests
        responses = []
        for request in requests:
            reply = await transport.send(transport.prepare(request))
            if reply.outcome not in (Outcome.OK, Outcome.REJECTED):
                raise PerfkitError(f"{address}: {reply.outcome.value}: {reply.error}")
            responses.append(transport.decode(reply))  # raises, with the server's words, where it refused
    return requests, responses


def _ignore(_: str) -> None:
    """What the bundled server says on stderr."""


async def compare(cases: Sequence[Case], triton: Triton, seconds: float) -> list[Row]:
    """All rows; each is printed when it is there."""
    rows = []
    triton_urls: Urls = {"http": f"http://127.0.0.1:{triton.http_port}", "grpc": f"grpc://127.0.0.1:{triton.grpc_port}"}
    for case in cases:
        async with bundled_server(case.model, device="cpu", threads=1, cpus=(), on_line=_ignore) as ours:
            with tempfile.TemporaryDirectory() as folder:
                for protocol, engine in WAYS:
                    servers = {"Triton": triton_urls, "the bundled server": ours.urls}
                    rows.append(await judge(case, protocol, engine, servers, seconds, pathlib.Path(folder)))
                    print(rows[-1].line(), *(f"  {fault}" for fault in rows[-1].told_faults()), sep="\n", flush=True)
    return rows


def page(rows: Sequence[Row], head: Sequence[str], triton_version: str, seconds: float) -> str:
    """The report."""
    text = [
        f"# The bundled server beside Triton {triton_version}", "",
        f"Triton runs the same models on its Python backend. `perfkit run`: concurrency 4, {seconds:g} s. Then every request of",
        "the scenario, and of scenarios with values at the edges of the datatype, is sent to both servers, at each batch size:",
        "the outputs agree where name, datatype, shape and all bytes are equal.", "",
        *head, *(row.line() for row in rows),
    ]  # fmt: skip
    faults = [f"- {row.model}, {row.protocol}, {row.engine}: {fault}" for row in rows for fault in row.told_faults()]
    return "\n".join([*text, *(["", "What differs:", "", *faults] if faults else []), ""])


def main() -> int:
    """Prints the table; 1 where anything failed or differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    known = [case.model for case in CASES]
    parser.add_argument("--models", nargs="+", choices=known, default=known, metavar="MODEL", help=f"default: {' '.join(known)}")
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--peers", type=pathlib.Path, help="where the peers are installed")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "reports" / "triton-agreement.md")
    options = parser.parse_args()
    os.chdir(ROOT)  # the bundled server is found from here, installed or not
    head = ["| model | protocol | engine | run on Triton | run on the bundled server | requests compared | agreed |",
            "|---|---|---|---|---|---:|---|"]  # fmt: skip
    print("\n".join(head), flush=True)
    try:
        with running_triton(peers_folder(options.peers)) as triton:
            rows = asyncio.run(compare([case for case in CASES if case.model in options.models], triton, options.seconds))
    except (TritonError, PerfkitError) as error:
        sys.stderr.write(f"triton_agreement: {error}\n")
        return 1
    options.out.write_text(page(rows, head, triton.version, options.seconds), encoding="utf-8")
    return 1 if any(row.faults for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
