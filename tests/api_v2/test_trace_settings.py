"""Changes of the server's trace settings, as HTTP and gRPC carry them."""

import asyncio
import json

from perfkit.api_v2.client import Client
from perfkit.api_v2.grpc import RpcCalls
from perfkit.api_v2.http import HttpCalls
from perfkit.protocol import v2_pb2
from perfkit.target.address import Address
from perfkit.transport.base import OneAddress
from perfkit.transport.http.calls import HttpResponse
from perfkit.transport.options import TransportOptions

SETTINGS = {"trace_level": ("TIMESTAMPS",), "trace_rate": ("50",)}


class HttpServer(OneAddress):
    address = Address.parse("http://127.0.0.1:1")

    def __init__(self, status):
        self.status, self.posted = status, []

    async def exchange(self, call):
        assert (call.method, call.headers) == ("POST", {"Content-Type": "application/json"})
        self.posted.append((call.path, json.loads(b"".join(call.body))))
        return HttpResponse(self.status, {}, b"{}" if self.status == 200 else b'{"error":"tracing is off"}')


class GrpcServer(OneAddress):
    address = Address.parse("grpc://127.0.0.1:1")

    def __init__(self):
        self.sent = []

    async def exchange(self, call):
        self.sent.append((call.path, v2_pb2.TraceSettingRequest.FromString(call.message)))
        return b""


def change(server, kind):
    return asyncio.run(Client(server, kind(TransportOptions(timeout_ns=10**9))).change_trace_settings(SETTINGS))


def test_http_posts_the_levels_as_a_list_and_the_rest_as_texts():
    server = HttpServer(200)
    assert change(server, HttpCalls) == ""
    assert server.posted == [("/v2/trace/setting", {"trace_level": ["TIMESTAMPS"], "trace_rate": "50"})]


def test_a_refusal_is_in_the_servers_words():
    assert change(HttpServer(400), HttpCalls) == "HTTP 400: tracing is off"


def test_grpc_sends_a_list_for_each_setting():
    server = GrpcServer()
    assert change(server, RpcCalls) == ""
    ((rpc, request),) = server.sent
    assert rpc == "/inference.GRPCInferenceService/TraceSetting"
    assert {name: list(value.value) for name, value in request.settings.items()} == {"trace_level": ["TIMESTAMPS"], "trace_rate": ["50"]}
