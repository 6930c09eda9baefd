"""The leanest v2 server that this package can be: canned answers over HTTP and gRPC, so that the client is what is measured.

    python -m perfkit.calibration.lean_server [--cpus 0,1]

It prints its ports as a line of JSON, and ends when its stdin does.
"""

import argparse
import asyncio
import json
import sys

from perfkit.calibration.lean_answers import GrpcAnswer, grpc_answers, http_answers
from perfkit.calibration.lean_grpc import LeanGrpc
from perfkit.calibration.lean_http import LeanHttp
from perfkit.machine.cpus import pinned


async def serve(stdin: asyncio.StreamReader) -> None:
    """Serves on free ports of the loopback until `stdin` ends."""
    loop = asyncio.get_running_loop()
    http, grpc = http_answers(), grpc_answers()
    heads: dict[bytes, tuple[int, bytes]] = {}
    blocks: dict[bytes, GrpcAnswer] = {}
    servers = {
        "http_port": await loop.create_server(lambda: LeanHttp(http, heads), "127.0.0.1", 0, backlog=4096),
        "grpc_port": await loop.create_server(lambda: LeanGrpc(grpc, blocks), "127.0.0.1", 0, backlog=4096),
    }
    sys.stdout.write(json.dumps({name: server.sockets[0].getsockname()[1] for name, server in servers.items()}) + "\n")
    sys.stdout.flush()
    await stdin.read()


async def _main() -> None:
    stdin = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    await serve(stdin)


if __name__ == "__main__":
    import uvloop

    parser = argparse.ArgumentParser(prog="python -m perfkit.calibration.lean_server")
    parser.add_argument("--cpus", default="", help="the CPUs to run on, such as 0,1; default all")
    given = parser.parse_args().cpus
    with pinned(tuple(int(cpu) for cpu in given.split(",") if cpu)):
        uvloop.run(_main())
