"""The connections of a scenario: their options, how many there are, and the files that processes need for them."""

import contextlib
import dataclasses
import math
from contextlib import AbstractAsyncContextManager

from perfkit.clock import Clock
from perfkit.errors import UsageError
from perfkit.machine.limits import count_open_files, raise_open_file_limit
from perfkit.scenario.load import ClosedLoadSpec
from perfkit.scenario.model import Scenario
from perfkit.scenario.sequences import Stream
from perfkit.target.address import Address, WireProtocol
from perfkit.target_client import Client, make_client
from perfkit.transport.options import FIRST_ANSWER_LIMIT, STATISTICS_LIMIT, AnswerLimit, Rotation, StreamOptions, TransportOptions
from perfkit.units import NS_PER_S
from perfkit.workers.local import WORKER_FILES

_STATISTICS_TIMEOUT_NS = 5 * NS_PER_S
LEAST_CONNECTIONS = 4
"""The fewest connections of an open loop."""
# measured, and rounded up: for files that are read and written and a process that is started; and for the pipes of children not started yet
_DRIVER_FILES, _FILES_OF_CHILDREN_TO_START = 8, 8
_FILES_PER_WORKER = 3
# of interpreter, event loop, libraries and listening sockets; measured, and rounded up
_SERVER_FILES = 28


def max_connections(scenario: Scenario) -> int:
    """The scenario's limit of connections; by default 1,024, or less if this process may open fewer files."""
    return scenario.target.max_connections or min(1024, raise_open_file_limit() * 4 // 5)


def transport_options(scenario: Scenario, protocol: WireProtocol) -> TransportOptions:
    """The transport options for one of the scenario's protocols."""
    target = scenario.target
    return TransportOptions(
        timeout_ns=target.timeout_ns,
        engine=target.engine,
        max_connections=max_connections(scenario),
        streams_per_connection=streams_per_connection(scenario, protocol),
        answer_limit=AnswerLimit(target.max_answer_bytes) if target.max_answer_bytes else FIRST_ANSWER_LIMIT,
        stream=None if scenario.stream is None else _stream_options(scenario.stream),
        compression=target.compression,
        has_output_slots=scenario.shared_memory is not None and scenario.shared_memory.outputs,
        rotation=None if target.connections is None else Rotation(target.connections.max_requests, target.connections.max_age_ns),
        balance=target.balance or "round_robin",
        resolve=target.resolve or "first",
    )


def _stream_options(stream: Stream) -> StreamOptions:
    return StreamOptions(stream.requests_per_stream, stream.in_flight, has_infer_bodies=stream.body == "infer")


def connect(scenario: Scenario, address: Address, clock: Clock) -> AbstractAsyncContextManager[Client]:
    """A client with the scenario's options to an address of its target, closed at the end of the block."""
    return contextlib.aclosing(make_client(address, transport_options(scenario, address.protocol), clock))


def connect_for_statistics(scenario: Scenario, address: Address, clock: Clock) -> AbstractAsyncContextManager[Client]:
    """A client like `connect`'s, with the limits of statistics."""
    options = transport_options(scenario, address.protocol)
    options = dataclasses.replace(options, timeout_ns=min(options.timeout_ns, _STATISTICS_TIMEOUT_NS), answer_limit=STATISTICS_LIMIT)
    return contextlib.aclosing(make_client(address, options, clock))


def streams_per_connection(scenario: Scenario, protocol: WireProtocol) -> int:
    """The number of HTTP/2 streams that share a connection at a time."""
    return (scenario.target.streams_per_connection or 1) if protocol == "grpc" else 1


def requests_per_connection(scenario: Scenario, protocol: WireProtocol) -> int:
    """The number of requests that share a connection at a time."""
    return streams_per_connection(scenario, protocol) * (1 if scenario.stream is None else scenario.stream.in_flight)


def least_connections(scenario: Scenario) -> int:
    """The connections that the scenario needs at least, as far as that is known before the target has answered."""
    if scenario.workloads is not None:
        return sum(map(least_connections, scenario.plain_scenarios()))
    load = scenario.load
    in_flight = max(load.closed.levels) if isinstance(load, ClosedLoadSpec) else LEAST_CONNECTIONS
    shared = max(requests_per_connection(scenario, protocol) for protocol in scenario.target.load_protocols)
    return min(math.ceil(in_flight / shared), max_connections(scenario))


@dataclasses.dataclass(frozen=True, slots=True)
class FileNeed:
    """The files and sockets that one process of a run needs, with the arithmetic."""

    process: str
    files: int
    arithmetic: str


def file_needs(*, open_now: int, has_started: bool, connections: int, workers: int, has_server: bool) -> list[FileNeed]:
    """What each process of a run needs.

    `open_now` are the files that this process has open, `has_started` says whether they include the pipes of its children, and
    `connections` are those of all workers together. Pipes of workers that have stayed from an earlier load point count twice.
    """
    needs, spare = [], _DRIVER_FILES + (0 if has_started else _FILES_OF_CHILDREN_TO_START)
    own = f"{open_now} that are open, {spare} for its child processes and files"
    pipes, share = _FILES_PER_WORKER * workers, -(-connections // workers)
    needs.append(FileNeed("the load generator", open_now + spare + pipes, f"{own}, {pipes} for {workers} workers"))
    needs.append(FileNeed("each worker", WORKER_FILES + share, f"{WORKER_FILES} of its own, {share} for connections"))
    if has_server:
        needs.append(
            FileNeed("the bundled server", _SERVER_FILES + connections, f"{_SERVER_FILES} of its own, {connections} for connections")
        )
    return needs


def describe_shortage(needs: list[FileNeed], limit: int) -> str:
    """A sentence about the process that lacks most, with the remedy; empty if each has what it needs."""
    need = max(needs, key=lambda one: one.files)
    if need.files <= limit:
        return ""
    return (
        f"the file limit is too low: {need.process} needs {need.files} open files and sockets ({need.arithmetic}), and the limit is {limit}: "
        f"raise it, such as `ulimit -n {max(1024, 2 * need.files)}`, or lower the concurrency or target.max_connections"
    )


def check_connections(scenario: Scenario) -> None:
    """Raises UsageError if a scenario needs more connections than this process may open files; a fleet's machines open them themselves."""
    if scenario.fleet is None:
        least, workers = least_connections(scenario), scenario.measure.workers
        if shortage := file_shortage(scenario, least, 1 if workers == "auto" else min(workers, least), has_started=False):
            raise UsageError(shortage)


def file_shortage(scenario: Scenario, connections: int, workers: int, *, has_started: bool) -> str:
    """Why this many connections need more files than may be opened; empty if they do not."""
    targets = [one.target for one in scenario.plain_scenarios()]
    has_server = any(target.is_started and target.command is None for target in targets)
    needs = file_needs(
        open_now=count_open_files(), has_started=has_started, connections=connections, workers=workers, has_server=has_server
    )
    return describe_shortage(needs, raise_open_file_limit())
