"""Changes of the server's trace settings, as HTTP and gRPC carry them."""

import asyncio
import json

from perfkit.protocol import v2_pb2
from perfkit.target.address import Address
from perfkit.transport.grpc.calls import RpcTransport
from perfkit.transport.http.calls import HttpResponse, RestTransport
from perfkit.transport.options import TransportOptions

SETTINGS = {"trace_level": ("TIMESTAMPS",), "trace_rate": ("50",)}


class HttpServer(RestTransport):
    def __init__(self, status):
        super().__init__(Address.parse("http://127.0.0.1:1"), TransportOptions(timeout_ns=10**9))
        self.status, self.posted = status, []

    async def get(self, path):
        raise AssertionError(path)

    def _response(self, reply):
        raise AssertionError(reply)

    async def post(self, path, body):
        self.posted.append((path, json.loads(body)))
        return HttpResponse(self.status, {}, b"{}" if self.status == 200 else b'{"error":"tracing is off"}')


class GrpcServer(RpcTransport):
    def __init__(self):
        super().__init__(Address.parse("grpc://127.0.0.1:1"))
        self.sent = []

    async def _exchange(self, rpc, message):
        self.sent.append((rpc, v2_pb2.TraceSettingRequest.FromString(message)))
        return b""


def test_http_posts_the_levels_as_a_list_and_the_rest_as_texts():
    server = HttpServer(200)
    assert asyncio.run(server.change_trace_settings(SETTINGS)) == ""
    assert server.posted == [("/v2/trace/setting", {"trace_level": ["TIMESTAMPS"], "trace_rate": "50"})]


def test_a_refusal_is_in_the_servers_words():
    assert asyncio.run(HttpServer(400).change_trace_settings(SETTINGS)) == "HTTP 400: tracing is off"


def test_grpc_sends_a_list_for_each_setting():
    server = GrpcServer()
    assert asyncio.run(server.change_trace_settings(SETTINGS)) == ""
    ((rpc, request),) = server.sent
    assert rpc == "TraceSetting"
    assert {name: list(value.value) for name, value in request.settings.items()} == {"trace_level": ["TIMESTAMPS"], "trace_rate": ["50"]}
