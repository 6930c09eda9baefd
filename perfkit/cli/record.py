"""`perfkit record`: a proxy that passes v2 traffic on and records it as a trace, for replay."""

import argparse
import asyncio
import json
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perfkit.cli.exit_code import ExitCode

if TYPE_CHECKING:
    from perfkit.proxy.delay import ReadySelector
    from perfkit.proxy.messages import Recorded
    from perfkit.proxy.observation import Observation
    from perfkit.proxy.proxy import Proxy, Route
    from perfkit.target.address import Address

_MOST_LINES = 20


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    listen = "where clients connect to, http://HOST:PORT or grpc://HOST:PORT; port 0 picks a free one; may be repeated"
    parser.add_argument("--listen", required=True, action="append", metavar="URL", help=listen)
    target = "the server that they are passed on to; one for each --listen, in the same order"
    parser.add_argument("--target", required=True, action="append", metavar="URL", help=target)
    out = "the trace to write: .jsonl, .csv or .parquet; payloads go into a folder beside it"
    parser.add_argument("--out", required=True, type=pathlib.Path, metavar="TRACE", help=out)
    payloads = "what is recorded of the tensors: nothing, a digest of each request (default), or the requests themselves"
    parser.add_argument("--payloads", choices=("none", "hash", "full"), default="hash", help=payloads)
    parser.add_argument("--duration", metavar="TIME", help="end after this time, such as 10m; default: Ctrl-C ends it")
    idle = "close connections on which nothing passes for so long; default: 10m"
    parser.add_argument("--idle-timeout", metavar="TIME", default="10m", help=idle)
    parser.add_argument("--format", choices=("text", "json"), default="text", help="what is printed to stdout at the end")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> ExitCode:
    from perfkit.clock import MonotonicClock
    from perfkit.errors import UsageError
    from perfkit.proxy.delay import ReadySelector

    if len(options.listen) != len(options.target):
        raise UsageError(f"each --listen needs a --target: found {len(options.listen)} and {len(options.target)}")
    routes = [_route(listen, target) for listen, target in zip(options.listen, options.target, strict=True)]
    duration_ns = _duration_ns("--duration", options.duration) if options.duration else None
    idle_ns = _duration_ns("--idle-timeout", options.idle_timeout)
    selector = ReadySelector(MonotonicClock().now_ns)
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        return runner.run(_record(routes, options, selector, duration_ns, idle_ns))


def _duration_ns(option: str, text: str) -> int:
    from perfkit.errors import UsageError
    from perfkit.units import parse_duration_ns

    try:
        duration_ns = parse_duration_ns(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
    if not duration_ns:
        raise UsageError(f"{option} {text}: expected a time above 0")
    return duration_ns


async def _record(
    routes: "Sequence[Route]", options: argparse.Namespace, selector: "ReadySelector", duration_ns: int | None, idle_ns: int
) -> ExitCode:
    from perfkit.cli.signals import SignalHandler
    from perfkit.clock import MonotonicClock, wall_ns
    from perfkit.errors import StorageError
    from perfkit.proxy.messages import Recording
    from perfkit.proxy.observation import observing
    from perfkit.proxy.proxy import Proxy
    from perfkit.trace.writer import complete_trace

    clock, stop, loop = MonotonicClock(), asyncio.Event(), asyncio.get_running_loop()
    await asyncio.gather(*(_check_reachable(route.target) for route in routes))
    proxy = Proxy(clock, lambda: selector.ready_since_ns, _say, idle_ns=idle_ns)
    recording = Recording(str(options.out), options.payloads, wall_ns() - clock.now_ns())
    with SignalHandler(on_first=stop.set).installed():
        async with proxy.listening(routes) as opened, observing(recording, proxy.note_unreadable, _say_failure) as observation:
            started_ns = clock.now_ns()
            if duration_ns is not None:
                loop.call_later(duration_ns / 1e9, stop.set)
            await proxy.serve(observation, lambda: _say_routes(opened), stop)
            length_s = (clock.now_ns() - started_ns) / 1e9
            try:
                recorded = await observation.end()
                failures = [recorded.failure]
            except StorageError as error:
                recorded, failures = None, [str(error)]
        try:
            complete_trace(options.out)
        except StorageError as error:
            failures.append(str(error))
    for failure in filter(None, failures):
        _say(failure)
    _print_summary(options, _summary(options, recorded, proxy, observation, length_s))
    return ExitCode.INVALID if any(failures) else ExitCode.DONE


def _route(listen_url: str, target_url: str) -> "Route":
    from perfkit.errors import UsageError
    from perfkit.proxy.proxy import Route
    from perfkit.target.address import redacted_url, split_credentials

    listen, target = _address("--listen", listen_url), _address("--target", target_url)
    if listen.tls is not None:
        raise UsageError(f"--listen {listen}: the proxy does not speak TLS to clients: use http:// or grpc://")
    if listen.protocol != target.protocol:
        raise UsageError(f"--listen {listen} and --target {target} speak different protocols")
    for option, url, address in (("--listen", listen_url, listen), ("--target", target_url, target)):
        if split_credentials(url)[1]:
            shown = redacted_url(url)
            raise UsageError(f"{option} {shown}: requests are passed on unchanged, so credentials belong to the clients: remove them here")
        if address.base_path:
            raise UsageError(
                f"{option} {address}: requests are passed on unchanged, so a prefix belongs into the clients' URLs: remove it here"
            )
    return Route(listen, target)


def _address(option: str, url: str) -> "Address":
    import dataclasses

    from perfkit.errors import UsageError
    from perfkit.target.address import Address

    try:
        if option == "--listen" and url.endswith(":0"):
            return dataclasses.replace(Address.parse(url + "1"), port=0)
        return Address.parse(url)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


async def _check_reachable(target: "Address") -> None:
    """Raises TargetError if nothing listens at the target."""
    from perfkit.transport.connect import unreachable

    try:
        async with asyncio.timeout(10):
            if target.socket_path:
                _, writer = await asyncio.open_unix_connection(target.socket_path)
            else:
                _, writer = await asyncio.open_connection(target.host, target.port)
    except OSError as error:
        raise unreachable(target, error) from None
    writer.close()


def _say(line: str) -> None:
    print(f"perfkit: {line}", file=sys.stderr, flush=True)


def _say_failure(reason: str) -> None:
    _say(f"{reason}; requests are passed on, but not recorded any more")


def _say_routes(routes: "Sequence[Route]") -> None:
    for route in routes:
        print(f"listening on {route.listen} for {route.target}", file=sys.stderr, flush=True)
    print("recording; Ctrl-C ends it", file=sys.stderr, flush=True)


def _summary(
    options: argparse.Namespace, recorded: "Recorded | None", proxy: "Proxy", observation: "Observation", length_s: float
) -> Mapping[str, Any]:
    """What was recorded and what was not, as the JSON document that `--format json` prints; None stands for what only the process knew that records."""
    from perfkit.proxy.messages import Recorded

    known: Mapping[str, Any] = dict.fromkeys(Recorded._fields) if recorded is None else recorded._asdict()
    calls = None if recorded is None else sorted(recorded.calls.items())
    return {
        "trace": str(options.out),
        "requests": None if calls is None else sum(count for _, count in calls),
        "calls": [{"model": model, "call": call, "requests": count} for (model, call), count in calls or ()],
        "length_s": length_s,
        "payloads": {"distinct": known["distinct_payloads"], "bytes": known["payload_bytes"], "missing": known["without_payload"]},
        "not_recorded": {
            "requests": known["unwritten"],
            "incomplete_requests": known["incomplete"],
            "unreadable_connections": proxy.unreadable,
            "connections_behind": observation.behind,
            "bytes": observation.skipped_bytes + (known["unread_bytes"] or 0),
        },
        "connections": {
            "accepted": proxy.accepted,
            "closed_as_idle": proxy.idle,
            "refused": proxy.refused,
            "accept_errors": proxy.accept_errors,
        },
        "client_bytes": proxy.passed_bytes,
        "added_delay_ns": proxy.added_delay.summary(),
    }


def _print_summary(options: argparse.Namespace, summary: Mapping[str, Any]) -> None:
    from perfkit.units import format_bytes, format_duration_ns

    if options.format == "json":
        print(json.dumps(summary, indent=1))
        return
    payloads, missing, connections, delay = (summary[key] for key in ("payloads", "not_recorded", "connections", "added_delay_ns"))
    requests = "an unknown number of" if summary["requests"] is None else f"{summary['requests']:,}"
    print(f"{summary['trace']}: {requests} requests in {summary['length_s']:.1f} s")
    calls = sorted(summary["calls"], key=lambda call: -call["requests"])
    for call in calls[:_MOST_LINES]:
        print(f"  {call['model'] or '(no model)'}, {call['call']}: {call['requests']:,}")
    if len(calls) > _MOST_LINES:
        print(f"  {sum(call['requests'] for call in calls[_MOST_LINES:]):,} for {len(calls) - _MOST_LINES:,} others")
    if payloads["distinct"]:
        print(f"  {payloads['distinct']:,} distinct payloads, {format_bytes(payloads['bytes'])}")
    notes = {
        "requests without a payload: not v2, in shared memory, too large, or too many at once": payloads["missing"],
        "requests were passed on and not recorded, because the trace could not be written": missing["requests"],
        "requests did not end before their connection did, and are not recorded": missing["incomplete_requests"],
        f"of {connections['accepted']:,} connections could not be read from some point on": missing["unreadable_connections"],
        "connections brought more than could be recorded at the time": missing["connections_behind"],
        "connections were closed, because nothing passed on them": connections["closed_as_idle"],
        "connections were refused as too many": connections["refused"],
        "times a client could not be accepted": connections["accept_errors"],
    }
    for note, count in notes.items():
        if count:
            print(f"  {count:,} {note}")
    if missing["bytes"]:
        print(
            f"  {format_bytes(missing['bytes'])} of {format_bytes(summary['client_bytes'])} from clients were passed on unread: requests in them are not recorded"
        )
    if delay["count"]:
        p50, p99, largest = (format_duration_ns(delay[key]) for key in ("p50", "p99", "max"))
        print(
            f"  delay that the proxy added to a request, both ways, waits for other connections included: p50 {p50}, p99 {p99}, at most {largest}"
        )
