"""A run whose connections are all cut at once: only the requests in flight may be lost."""

import contextlib
import json
import socket
import struct
import subprocess
import sys
import threading

import pytest

from perfkit.result.interval_log import read_intervals
from tests import forked

CONCURRENCY, REQUESTS = 4, 400


class CuttingProxy:
    """Forwards bytes to a server and back; resets all connections once, in place of one inference response.

    Only inference responses are counted: a cut in place of a server-statistics response could lose no inference request.
    """

    def __init__(self, port, answers_until_cut):
        self._server = ("127.0.0.1", port)
        self._left = answers_until_cut
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        self.cut = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.close()
        self._reset_all()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                for one in (client, server):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                pair = (client, server)
                with self._lock:
                    self._pairs.add(pair)
                threading.Thread(target=self._pump, args=(client, server, pair), daemon=True).start()
                threading.Thread(target=self._pump, args=(server, client, pair), daemon=True).start()

    def _pump(self, source, sink, pair):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if sink is pair[0] and b"OUTPUT0" in data and self._is_cut_due():
                    self.cut = self._reset_all()
                    return
                sink.sendall(data)

    def _is_cut_due(self):
        """Counts an inference response; true for the one at which the connections are reset."""
        with self._lock:
            self._left -= 1
            return self._left == 0

    def _reset_all(self):
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            for one in pair:
                with contextlib.suppress(OSError):
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    one.shutdown(socket.SHUT_RD)  # wakes the thread that reads it
                one.close()
        return len(pairs)


@pytest.fixture(scope="module")
def server():
    command = [sys.executable, "-m", "server_stub", "--http-port", "0", "--grpc-port", "0", "--model", "simple", "--exit-with-stdin"]
    with forked.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        yield json.loads(process.stdout.readline())


@pytest.mark.parametrize("engine", ["wire", "reference"])
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_cutting_every_connection_loses_only_the_requests_in_flight(perfkit, write_scenario, server, protocol, engine):
    proxy = CuttingProxy(server[f"{protocol}_port"], answers_until_cut=REQUESTS // 2)
    scenario = write_scenario(
        target={"model": "simple", "url": f"{protocol}://127.0.0.1:{proxy.port}", "engine": engine},
        load={"closed": {"concurrency": CONCURRENCY, "think_time": "5ms"}},  # slow enough for the generator never to be the bottleneck
        measure={"warmup": "0s", "requests": REQUESTS, "repetitions": 1},
        telemetry=False,
    )
    try:
        finished = perfkit.measure(scenario)
    finally:
        proxy.close()
    (point,) = finished.result["points"]
    requests, connections = point["requests"], point["connections"]
    assert proxy.cut >= 1
    assert requests["scheduled"] == requests["sent"] == REQUESTS == requests["ok"] + requests["broken"] + requests["connect_failed"]
    assert requests["ok"] >= REQUESTS - CONCURRENCY * (1 if engine == "wire" else 4)  # gRPC's own client may fail some before it is back
    assert requests["broken"] + connections["retried"] >= 1
    logged = sum(histogram.count for tag, _, histogram in read_intervals(finished.folder) if tag.endswith("service"))
    assert logged == point["service_time_ns"]["count"] == requests["ok"]
