"""`perfkit record`: a proxy that passes v2 traffic on and records it as a trace, for replay."""

import argparse
import asyncio
import json
import pathlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from perfkit.cli.exit_code import ExitCode

if TYPE_CHECKING:
    from perfkit.proxy.proxy import Proxy, Route
    from perfkit.proxy.trace_recorder import TraceRecorder
    from perfkit.target.address import Address


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
    parser.add_argument("--format", choices=("text", "json"), default="text", help="what is printed to stdout at the end")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> ExitCode:
    from perfkit.errors import UsageError
    from perfkit.units import parse_duration_ns

    if len(options.listen) != len(options.target):
        raise UsageError(f"each --listen needs a --target: found {len(options.listen)} and {len(options.target)}")
    routes = [_route(listen, target) for listen, target in zip(options.listen, options.target, strict=True)]
    try:
        duration_ns = parse_duration_ns(options.duration) if options.duration else None
    except ValueError as error:
        raise UsageError(f"--duration: {error}") from None
    return asyncio.run(_record(routes, options, duration_ns))


async def _record(routes: "Sequence[Route]", options: argparse.Namespace, duration_ns: int | None) -> ExitCode:
    from perfkit.cli.signals import SignalHandler
    from perfkit.clock import MonotonicClock, wall_ns
    from perfkit.errors import StorageError, UsageError
    from perfkit.proxy.proxy import Proxy
    from perfkit.proxy.trace_recorder import TraceRecorder
    from perfkit.trace.writer import TraceWriter

    clock, stop, loop = MonotonicClock(), asyncio.Event(), asyncio.get_running_loop()
    await asyncio.gather(*(_check_reachable(route.target) for route in routes))
    writer = TraceWriter(options.out)

    def say_failure(text: str) -> None:
        loop.call_soon_threadsafe(_say, f"{text}; requests are passed on, but not recorded any more")

    recorder = TraceRecorder(writer, options.payloads, wall_ns() - clock.now_ns(), say_failure)
    proxy = Proxy(clock, recorder.add, _say)
    started_ns = clock.now_ns()
    if duration_ns is not None:
        loop.call_later(duration_ns / 1e9, stop.set)
    with SignalHandler(on_first=stop.set).installed():
        try:
            await proxy.serve(routes, _say_routes, stop)
        except UsageError:
            recorder.discard()
            raise
        length_s = (clock.now_ns() - started_ns) / 1e9
        try:
            recorder.close()
            code = ExitCode.DONE
        except StorageError as error:
            _say(str(error))
            code = ExitCode.INVALID
    _print_summary(options, recorder, proxy, length_s)
    return code


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


def _say_routes(routes: "Sequence[Route]") -> None:
    for route in routes:
        print(f"listening on {route.listen} for {route.target}", file=sys.stderr, flush=True)
    print("recording; Ctrl-C ends it", file=sys.stderr, flush=True)


def _print_summary(options: argparse.Namespace, recorder: "TraceRecorder", proxy: "Proxy", length_s: float) -> None:
    from perfkit.units import format_bytes, format_duration_ns

    counts, writer = proxy.added_delay.counts(), recorder.writer
    p50_ns, p99_ns = counts.values_at((0.5, 0.99))
    requests = sum(recorder.calls.values())
    if options.format == "json":
        document: dict[str, Any] = {
            "trace": str(options.out),
            "requests": requests,
            "calls": [{"model": model, "call": call, "requests": count} for (model, call), count in sorted(recorder.calls.items())],
            "length_s": length_s,
            "payloads": {"distinct": writer.distinct_payloads, "bytes": writer.payload_bytes, "missing": recorder.without_payload},
            "connections": {"accepted": proxy.connections, "not_recorded": proxy.unreadable},
            "added_delay_ns": {"count": counts.count, "p50": p50_ns, "p99": p99_ns, "max": counts.max_ns},
        }
        print(json.dumps(document, indent=1))
        return
    print(f"{options.out}: {requests:,} requests in {length_s:.1f} s")
    for (model, call), count in sorted(recorder.calls.items()):
        print(f"  {model or '(no model)'}, {call}: {count:,}")
    if writer.distinct_payloads:
        print(f"  {writer.distinct_payloads:,} distinct payloads, {format_bytes(writer.payload_bytes)}")
    if recorder.without_payload:
        print(f"  {recorder.without_payload:,} requests without a payload: not v2, in shared memory, too large, or too many at once")
    if proxy.unreadable:
        print(f"  {proxy.unreadable:,} of {proxy.connections:,} connections were passed on, but could not be read")
    if counts.count:
        both = f"p50 {format_duration_ns(p50_ns)}, p99 {format_duration_ns(p99_ns)}"
        print(f"  delay that the proxy added to a request, from reading to passing on, both ways: {both}")
