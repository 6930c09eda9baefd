"""A v2 server over HTTP that notes when each inference request came, from whom, and which number it carries.

    python -m benchmarks.fleet.recording_target HOST PORT

It prints `listening on PORT`, a free one for 0. For a line `count` on stdin it prints how many requests it has noted; for `take` what it has noted since the last `take`, as
JSON: the instants in nanoseconds of its monotonic clock, the senders' IP addresses, and the values of the requests' only input, null where that
is not JSON. It ends with its stdin.
"""

import asyncio
import json
import sys
import threading
import time
from typing import Any

MODEL, INPUT = "noted", "NUMBER"
_TENSOR = {"datatype": "INT32", "shape": [1]}
_METADATA = {
    "name": MODEL,
    "versions": ["1"],
    "platform": "none",
    "inputs": [{"name": INPUT, **_TENSOR}],
    "outputs": [{"name": "OUT", **_TENSOR}],
}
_ANSWER = {"model_name": MODEL, "model_version": "1", "outputs": [{"name": "OUT", **_TENSOR, "data": [0]}]}


def _response(status: str, document: Any) -> bytes:
    body = json.dumps(document).encode()
    return f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


_ANSWERED, _DESCRIBED, _UNKNOWN = _response("200 OK", _ANSWER), _response("200 OK", _METADATA), _response("404 Not Found", {"error": "no"})


class _Connection(asyncio.Protocol):
    """A connection, whose requests are answered in order."""

    def __init__(self, noted: list[tuple[int, str, int | None]]) -> None:
        self._noted, self._unread = noted, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._peer = str(transport.get_extra_info("peername")[0])

    def data_received(self, data: bytes) -> None:
        now_ns = time.monotonic_ns()
        self._unread += data
        while (end := self._unread.find(b"\r\n\r\n")) >= 0:
            line, *lines = self._unread[:end].decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in lines)}
            length = end + 4 + int(headers.get("content-length", 0))
            if len(self._unread) < length:
                return
            body, self._unread = self._unread[end + 4 : length], self._unread[length:]
            self._transport.write(self._answer(line.split()[1], body, now_ns))

    def _answer(self, path: str, body: bytes, now_ns: int) -> bytes:
        if path.endswith("/infer"):
            self._noted.append((now_ns, self._peer, _number(body)))
            return _ANSWERED
        return _DESCRIBED if path.endswith((f"/models/{MODEL}", "/live", "/ready")) else _UNKNOWN


def _number(body: bytes) -> int | None:
    try:
        return int(json.loads(body)["inputs"][0]["data"][0])
    except (ValueError, KeyError):  # a binary tensor
        return None


async def _serve(host: str, port: int) -> None:
    noted: list[tuple[int, str, int | None]] = []
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def report(question: str) -> None:
        if question == "count":
            print(len(noted), flush=True)
            return
        taken, noted[:] = list(noted), []
        print(json.dumps(list(zip(*taken, strict=True)) or [[], [], []]), flush=True)

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(report, line.strip())
        loop.call_soon_threadsafe(ended.set)

    server = await loop.create_server(lambda: _Connection(noted), host, port)
    print(f"listening on {server.sockets[0].getsockname()[1]}", flush=True)
    threading.Thread(target=read, daemon=True).start()
    async with server:
        await ended.wait()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2])))
