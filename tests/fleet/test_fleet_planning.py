"""docs/how-to/fleet-planning.md: each of its tables is computed again, from the reports that it names and from perfkit's own rules."""

import asyncio
import math
import pathlib
import re

import numpy as np
import pytest

from benchmarks.fleet_simulation import FLEETS
from perfkit.api_v2.client import make_client
from perfkit.calibration.model import Cost, workers_needed
from perfkit.clock import MonotonicClock
from perfkit.fleet.fleet import limit_fault
from perfkit.fleet.messages import Hello
from perfkit.load.open_loop import SPIN_NS
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Datatype, tensor_from_array
from perfkit.target.address import Address
from perfkit.transport.options import TransportOptions

ROOT = pathlib.Path(__file__).parents[2]
RATE_PER_S, WORKERS_OF_MACHINE, PORTS, WORKERS = 1_000_000, 14, 28_232, 80
INPUT_BYTES = {"http-small": 128, "grpc-small": 128, "http-large": 602_112, "grpc-large": 602_112}
PAGE = (ROOT / "docs/how-to/fleet-planning.md").read_text(encoding="utf-8")
SIMULATION = (ROOT / "reports/fleet-simulation.md").read_text(encoding="utf-8")


def table(text, head):
    """The rows of the Markdown table whose head begins so, by their first cell."""
    (found,) = re.findall(rf"^\| {re.escape(head)} \|.*\n\|[-:|]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in found.splitlines()]
    return {first: rest for first, *rest in rows}


def number(cell):
    """The figure in a cell such as `15.5 µs` or `12,613/s`."""
    (digits, *_) = re.findall(r"[\d,.]+", cell)
    return float(digits.replace(",", ""))


@pytest.mark.parametrize("case", INPUT_BYTES)
def test_the_processors_follow_from_the_measured_cost(case):
    cpu_us, rate, workers, machines = map(number, table(PAGE, "requests | CPU time")[case])
    (measured,) = re.findall(rf"## {case}:(?:.*\n)*?\| perfkit \| ([\d.]+) us", (ROOT / "reports/peers.md").read_text(encoding="utf-8"))
    assert cpu_us == float(measured)
    cost = Cost(
        protocol=case[:4], tensor_bytes=128, cpu_ns_per_request=cpu_us * 1000, ceiling_per_s=1,
        service_time_p50_ns=1, bare_p50_ns=1, overhead_p50_ns=1,
    )  # fmt: skip
    needed = workers_needed([cost], protocol=case[:4], tensor_bytes=128, rate_per_s=RATE_PER_S, max_workers=10_000, spin_ns=SPIN_NS)
    assert workers == needed == math.ceil(RATE_PER_S / rate)
    assert rate == round(0.7 / (cpu_us + 40) * 1e6)
    assert machines == math.ceil(workers / WORKERS_OF_MACHINE)


@pytest.mark.parametrize("case", INPUT_BYTES)
def test_the_network_follows_from_the_length_of_the_requests(case):
    length, on_wire, gbit_per_s, slow_cards, fast_cards = map(number, table(PAGE, "requests | length")[case])
    assert length == pytest.approx(asyncio.run(request_bytes(case)), rel=0.02)  # names differ
    assert on_wire == length + 90 * math.ceil(length / 1448)
    assert gbit_per_s == pytest.approx(on_wire * 8 * RATE_PER_S / 1e9, abs=0.05)
    assert [slow_cards, fast_cards] == [math.ceil(on_wire * 8 * RATE_PER_S / (0.7 * card)) for card in (25e9, 100e9)]


async def request_bytes(case):
    """The length of a request that perfkit sends."""
    address = Address.parse({"http": "http://server.example:8000", "grpc": "grpc://server.example:8001"}[case[:4]])
    transport = make_client(address, TransportOptions(timeout_ns=10**9), MonotonicClock())
    inputs = (tensor_from_array("INPUT", Datatype.UINT8, np.zeros((1, INPUT_BYTES[case]), np.uint8)),)
    try:
        return sum(map(len, transport.prepare(InferRequest("model", inputs)).buffers))
    finally:
        await transport.aclose()


@pytest.mark.parametrize(("time", "time_ms"), [("5 ms", 5), ("20 ms", 20), ("100 ms", 100), ("1 s", 1000)])
def test_ports_and_files_follow_from_the_response_time(time, time_ms):
    in_flight, connections, machines, files = map(int, map(number, table(PAGE, "response time")[time]))
    assert in_flight == RATE_PER_S * time_ms / 1000
    assert connections == 2 * in_flight

    def fault(machines, open_files):
        hello = Hello("machine", "1", (0,), open_files, PORTS, None)
        return limit_fault(hello, -(-connections // machines), WORKERS // machines or 1)

    assert fault(machines, 10**9) == ""
    assert machines == 1 or fault(machines - 1, 10**9)
    hello = Hello("machine", "1", (0,), files, None, None)
    assert limit_fault(hello, connections, WORKERS) == ""
    assert limit_fault(Hello("machine", "1", (0,), files - 1, None, None), connections, WORKERS)
    assert f"{PORTS // 60} requests a second" in PAGE


def test_the_driver_needs_what_the_simulation_found():
    rows = table(PAGE, "at the driver")
    found = {**table(SIMULATION, "at the end of the point"), **table(SIMULATION, "during the point")}
    assert {name: found[name][:2] for name in rows} == rows
    memory, frames, receive, merge, log = (
        [number(cell) for cell in rows[name]]
        for name in (
            "memory",
            "time to receive a second's frames",
            "time to receive all",
            "time to merge them",
            "time to log a second's intervals",
        )
    )
    busy_ms = [frames[k] + log[k] for k in (0, 1)]
    said = " ".join(PAGE.split())
    assert f"{busy_ms[0]:.0f} ms a second for 80 workers and {busy_ms[1]:.0f} ms for 1,000" in said
    assert f"with 70 % of a core, {round(700 / busy_ms[1] * 63, -1):,.0f} machines of 16 workers are the most" in said
    few, many = (f"{memory[k] / 1e3:.1f} GB and {(receive[k] + merge[k]) / 1e3:.1f} s" for k in (0, 1))
    assert f"{few} for 80 workers, {many} for 1,000" in said
    apart_ms = sum(number(found[name][2]) for name in ("time to receive a second's frames", "time to log a second's intervals"))
    assert f"busy for {apart_ms:.0f} ms of each second" in said
    assert f"{number(found['log of an hour'][1]) / 1e3:.1f} GB an hour for 1,000 workers" in said
    merging = re.search(r"takes it ([\d.]+) ms for the whole point, and .*?: ([\d.]+) ms a second", SIMULATION)
    assert merging is not None
    assert f"{float(merging[1]) / 60 + float(merging[2]):.0f} ms a second for 16 workers" in said


def test_waits_under_wrong_clocks_are_those_of_the_simulation():
    sections = SIMULATION.split("\n### ")
    for rate_per_s, machines, _ in FLEETS:
        (section,) = (one for one in sections if one.startswith(f"Poisson arrivals, {rate_per_s:,.0f}/s"))
        rows = re.findall(r"^\| in turn \| ([\d,]+) µs \|.*\| ([\d.]+) \|$", section, re.MULTILINE)
        waits = {int(error.replace(",", "")): wait for error, wait in rows}
        said = table(PAGE, "arrivals")[f"Poisson, {rate_per_s:,.0f}/s"]
        assert said == [str(machines), f"{machines / rate_per_s * 1e3:g} ms", *(waits[error] for error in (100, 1000, 10_000))]


def test_the_answer_in_short_is_that_of_the_tables():
    machines = number(table(PAGE, "requests | CPU time")["http-small"][3])
    assert f"six machines of 16 CPUs, on which `measure.workers: 14` makes {machines * 14:.0f} workers" in " ".join(PAGE.split())
    assert f"{table(PAGE, 'requests | length')['http-large'][3]} machines with cards of 25 Gbit/s" in PAGE
