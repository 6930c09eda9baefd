"""The lean server as a process of its own, for the length of a block."""

import asyncio
import asyncio.subprocess
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence

from perfkit.errors import MeasurementError
from perfkit.target.address import Address, Protocol

_ENDS_WITHIN_S = 5


@contextlib.asynccontextmanager
async def lean_process(cpus: Sequence[int]) -> AsyncIterator[Mapping[Protocol, Address]]:
    """Starts it, on those CPUs or on any, and gives its addresses; raises MeasurementError where it does not start."""
    command = [sys.executable, "-m", "perfkit.calibration.lean_server", "--cpus", ",".join(map(str, cpus))]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, start_new_session=True)  # Ctrl-C is for perfkit alone
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = await process.stdout.readline()
        if not line:
            raise MeasurementError("the server that perfkit calibrates against did not start; what it printed says why")
        ports = json.loads(line)
        yield {"http": Address("http", "127.0.0.1", ports["http_port"]), "grpc": Address("grpc", "127.0.0.1", ports["grpc_port"])}
    finally:
        process.stdin.close()  # which ends it
        try:
            await asyncio.wait_for(process.wait(), _ENDS_WITHIN_S)
        except TimeoutError:
            process.kill()
            await process.wait()
