"""`perfkit worker`: makes this machine one of a fleet, for the length of a run on another machine."""

import argparse
import os
import pathlib
import sys
import urllib.parse
from typing import TYPE_CHECKING

from perfkit.cli.exit_code import ExitCode
from perfkit.cli.options import positive_duration_ns

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

    from perfkit.fleet.connection import Connection

_TRIES_EVERY_S = 1.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.add_argument(
        "--join", required=True, metavar="URL", help="where the run is driven from, as it says when it waits: tcp://HOST:PORT"
    )
    words = "a file with the token that the machines of the fleet share; default: the environment variable PERFKIT_FLEET_TOKEN"
    parser.add_argument("--token-file", type=pathlib.Path, metavar="FILE", help=words)
    tls = "use TLS, and trust certificates signed by those in this PEM file"
    parser.add_argument("--tls-ca", type=pathlib.Path, metavar="FILE", help=tls)
    parser.add_argument("--name", help="what this machine is called in results; default: its host name")
    keep = "stay for the next run, until none has come within --join-within: for sweeps and gates, which are many runs, each with a fleet of its own"
    parser.add_argument("--keep", action="store_true", help=keep)
    within = "how long to try to connect; default 2m"
    parser.add_argument("--join-within", type=positive_duration_ns, default=120 * 10**9, metavar="TIME", help=within)
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> ExitCode:
    import asyncio
    import functools
    import platform

    from perfkit.cli.signals import SignalHandler
    from perfkit.errors import TargetError, UsageError
    from perfkit.fleet.connection import JoinError
    from perfkit.fleet.machine import DriverLostError, RefusedError
    from perfkit.fleet.token import TOKEN_VARIABLE, read_token
    from perfkit.measurement.control import Interruption

    host, port = _host_and_port(options.join)
    token = read_token(options.token_file)
    if not token:
        raise UsageError(f"the fleet's token is missing: set {TOKEN_VARIABLE} as the run that is to be joined says, or give --token-file")
    name = options.name or platform.node() or "machine"
    interruption = Interruption()
    signals = SignalHandler(interruption)

    async def run() -> None:
        interruption.task = asyncio.current_task()
        with signals.installed():
            work, within_s = functools.partial(_work, host, port, token, _tls(options.tls_ca), name), options.join_within / 1e9
            await (_keep_working(work, within_s) if options.keep else work(within_s))

    try:
        asyncio.run(run())
    except (JoinError, DriverLostError, RefusedError) as error:
        raise TargetError(f"{options.join}: {error}") from None
    except asyncio.CancelledError:
        if signals.exit_code is None:
            raise
    return signals.exit_code or ExitCode.DONE


async def _work(host: str, port: int, token: str, tls: "ssl.SSLContext | None", name: str, within_s: float) -> None:
    from perfkit.clock import MonotonicClock
    from perfkit.fleet.dask_machine import TASK_VARIABLE
    from perfkit.fleet.machine import describe_machine, serve_driver

    connection = await _connect(host, port, token, tls, within_s)
    try:
        hello = describe_machine(name, os.environ.get(TASK_VARIABLE, ""))
        await serve_driver(connection, hello, MonotonicClock(), lambda own: _say(f"joined {host}:{port} as {own}"))
    finally:
        await connection.close()
    _say("the run is over")


async def _keep_working(work: "Callable[[float], Awaitable[None]]", within_s: float) -> None:
    """Works for one run after another, until none comes in time; raises the error of the first attempt if there was not even one."""
    import asyncio

    from perfkit.errors import TargetError
    from perfkit.fleet.connection import JoinError
    from perfkit.fleet.machine import DriverLostError, RefusedError

    now_s = asyncio.get_running_loop().time
    has_worked, ends_at, said = False, now_s() + within_s, ""
    while True:
        try:
            await work(max(ends_at - now_s(), 0))
            has_worked, ends_at, said = True, now_s() + within_s, ""
        except DriverLostError as error:
            has_worked, ends_at, said = True, now_s() + within_s, ""
            _say(f"{error}; waiting for another run")
        except (JoinError, RefusedError) as error:  # such as by a run that already has its machines
            if not has_worked:
                raise
            if said != str(error):
                said = str(error)
                _say(f"{said}; waiting for another run")
        except TargetError:
            if not has_worked:
                raise
            _say("no further run has come")
            return
        await asyncio.sleep(_TRIES_EVERY_S)  # the driver may refuse this machine all the time


async def _connect(host: str, port: int, token: str, tls: "ssl.SSLContext | None", within_s: float) -> "Connection":
    """Tries until the driver listens: it may be started later."""
    import asyncio
    import ssl

    from perfkit.errors import TargetError
    from perfkit.fleet.connection import join

    loop = asyncio.get_running_loop()
    ends_at = loop.time() + within_s
    while True:
        try:
            async with asyncio.timeout_at(max(ends_at, loop.time() + _TRIES_EVERY_S)):  # an unreachable host may leave it unanswered
                return await join(host, port, token, tls)
        except ssl.SSLError as error:
            raise TargetError(f"tcp://{host}:{port}: TLS failed: {error.reason or error}") from None
        except OSError as error:
            if loop.time() + _TRIES_EVERY_S > ends_at:
                raise TargetError(f"tcp://{host}:{port}: cannot be joined: {error.strerror or str(error) or 'no answer'}") from None
        await asyncio.sleep(_TRIES_EVERY_S)


def _tls(ca: pathlib.Path | None) -> "ssl.SSLContext | None":
    import ssl

    from perfkit.errors import UsageError

    if ca is None:
        return None
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"--tls-ca {ca}: {getattr(error, 'strerror', None) or error}") from None


def _host_and_port(url: str) -> tuple[str, int]:
    from perfkit.errors import UsageError

    try:
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if host is None or port is None or parts.scheme != "tcp" or parts.path not in {"", "/"}:
        raise UsageError(f"--join {url}: expected tcp://HOST:PORT, such as tcp://10.0.0.1:8790")
    return host, port


def _say(text: str) -> None:
    print(f"perfkit worker: {text}", file=sys.stderr, flush=True)
