"""The OpenAI front end over sockets: the declared instants on a clock that stands still, bytes, errors, and clients that leave."""

import http.client
import json
import socket

import aiohttp
import pytest

from server_stub.http.front_end import HttpFrontEnd
from server_stub.log import Log
from server_stub.openai.front_end import OpenAiFrontEnd
from server_stub.repository.repository import Repository
from server_stub.repository.sources import BuiltinModels
from server_stub.service import Service
from server_stub.settings import Settings
from server_stub.shared_memory.regions import SharedMemoryRegions
from server_stub.synthetic.declaration import parse_service_model
from server_stub.synthetic.dispatch import DepartureTimer
from server_stub.synthetic.model import SyntheticModel
from tests.conditions import wait_until

MS = 10**6
ARRIVED_NS = 5 * 10**9
CHAT = {"model": "synthetic", "messages": [{"role": "user", "content": "one two three"}]}


class RecordedDepartures(DepartureTimer):
    """Lets every request depart at once, and notes the instants."""

    def __init__(self):  # no alarm
        self.instants_ns: list[int] = []

    async def wait(self, departed_ns):
        self.instants_ns.append(departed_ns)

    def close(self):
        pass


async def instants_and_answers(declaration, *requests):
    """The instants that requests wait for, in nanoseconds after their arrival, and the bodies of their answers; each has a path and a document."""
    departures = RecordedDepartures()
    model = SyntheticModel(parse_service_model(declaration), lambda: departures)
    repository = Repository(BuiltinModels({"synthetic": lambda: model}), ["synthetic"])
    repository.load()
    service = Service(repository, SharedMemoryRegions(is_allowed=False), Log(Settings()))
    front_end = HttpFrontEnd(service, OpenAiFrontEnd(service, lambda: ARRIVED_NS, lambda: 1_700_000_000.5).routes())
    port = await front_end.start("127.0.0.1", 0)
    bodies = []
    try:
        async with aiohttp.ClientSession() as client:
            for path, document in requests:
                async with client.post(f"http://127.0.0.1:{port}/v1/{path}", json=document) as response:
                    bodies.append(await response.read())
    finally:
        await front_end.stop()
    return [instant_ns - ARRIVED_NS for instant_ns in departures.instants_ns], bodies


def stream(**keys):
    return "chat/completions", {**CHAT, "stream": True, **keys}


async def test_events_are_due_at_the_departure_and_a_gap_after_each_other():
    instants_ns, _ = await instants_and_answers("service=constant:200ms,gap=20ms,lead=0s", stream(max_tokens=4))
    assert instants_ns == [200 * MS, 220 * MS, 240 * MS, 260 * MS]


async def test_they_are_sent_earlier_by_the_lead():
    instants_ns, _ = await instants_and_answers("service=constant:200ms,gap=20ms,lead=2ms", stream(max_tokens=2))
    assert instants_ns == [198 * MS, 218 * MS]


async def test_a_gap_is_between_events_and_not_between_tokens():
    instants_ns, _ = await instants_and_answers(
        "service=constant:5ms,gap=3ms,lead=0s,tokens_per_event=4,reasoning=2", stream(max_tokens=11)
    )
    assert instants_ns == [5 * MS, 8 * MS, 11 * MS, 14 * MS]  # 2 tokens of reasoning, then 4, 4 and 1


async def test_an_answer_that_is_not_streamed_is_due_with_the_last_event():
    plain = ("chat/completions", {**CHAT, "max_tokens": 4})
    instants_ns, (body,) = await instants_and_answers("service=constant:200ms,gap=20ms,lead=0s", plain)
    assert instants_ns == [200 * MS, 260 * MS]
    assert json.loads(body) == {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1_700_000_000, "model": "synthetic",
        "choices": [{"index": 0, "logprobs": None, "finish_reason": "length", "message": {"role": "assistant", "content": "token token token token"}}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
    }  # fmt: skip


async def test_requests_wait_in_the_simulated_queue_for_their_first_event_alone():
    declaration = "service=constant:10ms,gap=50ms,lead=0s"
    instants_ns, _ = await instants_and_answers(declaration, stream(max_tokens=2), stream(max_tokens=1))
    assert instants_ns == [10 * MS, 60 * MS, 20 * MS]


async def test_embeddings_take_the_service_time_of_their_batch():
    asked = ("embeddings", {"model": "synthetic", "input": ["a", "b c", "d"]})
    instants_ns, (body,) = await instants_and_answers("service=linear:5ms+2ms/row,lead=0s,gap=1ms", asked)
    assert instants_ns == [11 * MS]
    assert json.loads(body)["usage"] == {"prompt_tokens": 4, "total_tokens": 4}


async def test_a_stream_fails_at_the_instant_of_the_event_that_it_lacks():
    declaration = "service=constant:10ms,gap=5ms,lead=0s,stream_error=2"
    instants_ns, (streamed, single) = await instants_and_answers(declaration, stream(max_tokens=9), ("chat/completions", CHAT))
    assert instants_ns == [10 * MS, 15 * MS, 20 * MS, 20 * MS, 30 * MS]  # the second one waits for the first, and is not streamed
    assert streamed.count(b'"content":"') == 3
    assert streamed.endswith(b'"code":null}}\n\ndata: [DONE]\n\n')
    assert json.loads(single)["error"]["type"] == "server_error"


async def test_an_answer_has_the_declared_number_of_tokens_unless_the_request_sets_its_own():
    _, bodies = await instants_and_answers("tokens=5", ("completions", {"model": "synthetic", "prompt": "a"}), ("chat/completions", CHAT))
    counted = [(one["usage"]["completion_tokens"], one["choices"][0]["finish_reason"]) for one in map(json.loads, bodies)]
    assert counted == [(5, "stop"), (5, "stop")]


def read_until(connection, end):
    received = b""
    while not received.endswith(end):
        received += connection.recv(1 << 16)
    return received


def test_the_bytes_of_a_stream(start_server):
    body = json.dumps({"model": "synthetic", "prompt": "a", "max_tokens": 2, "stream": True}).encode()
    request = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    with start_server("--model=synthetic", "--synthetic=service=constant:1ms") as server, socket.create_connection(("127.0.0.1", server.http_port)) as connection:  # fmt: skip
        connection.sendall(request)
        head, _, chunks = read_until(connection, b"\r\n0\r\n\r\n").partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        assert lines[0] == b"HTTP/1.1 200 OK"
        assert {b"Content-Type: text/event-stream; charset=utf-8", b"Cache-Control: no-cache", b"Transfer-Encoding: chunked"} <= set(lines)
        pieces = []
        while chunks:
            size, _, rest = chunks.partition(b"\r\n")
            pieces.append(rest[: int(size, 16)])
            chunks = rest[int(size, 16) + 2 :]
        *events, last = pieces
        assert last == b""
        created_s = json.loads(events[0].removeprefix(b"data: "))["created"]
        known = b'data: {"id":"cmpl-1","object":"text_completion","created":%d,"model":"synthetic",' % created_s
        choice = known + b'"choices":[{"index":0,"text":"%s","logprobs":null,"finish_reason":%s}]}\n\n'
        assert events == [
            choice % (b"token", b"null"),
            choice % (b" token", b"null") + choice % (b"", b'"length"') + b"data: [DONE]\n\n",
        ]
        # the connection serves further requests
        connection.sendall(b"GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 OK")


def test_the_models_are_listed(wire):
    listed = wire.get("/v1/models").json
    (entry,) = listed["data"]
    assert listed["object"] == "list"
    assert {**entry, "created": 0} == {"id": "synthetic", "object": "model", "created": 0, "owned_by": "perfkit"}
    assert wire.get("/v1/models/synthetic").json == entry


def test_the_server_is_healthy_once_it_is_ready(wire):
    answer = wire.get("/health")
    assert (answer.status, answer.body) == (200, b"")


def test_without_the_model_there_is_none(start_server, wire_to):
    with start_server("--model=simple") as server:
        assert wire_to(server).get("/v1/models").json == {"object": "list", "data": []}
        assert wire_to(server).send("POST", "/v1/chat/completions", json.dumps(CHAT).encode()).status == 404


@pytest.mark.parametrize(("status", "kind"), [(400, "invalid_request_error"), (500, "server_error"), (503, "server_error")])
@pytest.mark.parametrize("is_streamed", [True, False])
def test_simulated_errors_have_their_status(start_server, wire_to, status, kind, is_streamed):
    with start_server("--model=synthetic", f"--synthetic=service=constant:1ms,errors=100%:{status}") as server:
        answer = wire_to(server).send("POST", "/v1/chat/completions", json.dumps({**CHAT, "stream": is_streamed}).encode())
    message = "model 'synthetic' failed, as its service model specifies for a share of requests"
    assert (answer.status, answer.json) == (status, {"error": {"message": message, "type": kind, "param": None, "code": None}})


def test_a_request_that_its_client_leaves_ends(start_server, wire_to):
    declaration = "service=constant:1ms,gap=24h"
    body = json.dumps({**CHAT, "stream": True}).encode()
    with start_server("--model=synthetic", f"--synthetic={declaration}", "--max-queue=1") as server:
        left = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
        left.request("POST", "/v1/chat/completions", body)
        response = left.getresponse()
        assert b'"content":"token"' in response.read1()
        single = json.dumps({**CHAT, "max_tokens": 1}).encode()
        refused = wire_to(server).send("POST", "/v1/chat/completions", single)
        assert (refused.status, refused.json["error"]["message"]) == (503, "Exceeds maximum queue size")
        response.close()
        left.close()
        wait_until(lambda: wire_to(server).send("POST", "/v1/chat/completions", single).status == 200)


def test_texts_are_served_beside_the_streams_of_the_same_model_over_v2(start_server, wire_to):
    with start_server("--model=synthetic", "--synthetic=service=constant:1ms,responses=3,gap=1ms") as server:
        wire = wire_to(server)
        v2 = wire.send("POST", "/v2/models/synthetic/generate_stream", b'{"INPUT0": [1]}')
        assert v2.body.count(b"data: ") == 3
        chat = wire.send("POST", "/v1/chat/completions", json.dumps({**CHAT, "max_tokens": 2}).encode())
        assert chat.json["usage"]["completion_tokens"] == 2
        stats = wire.get("/v2/models/synthetic/stats").json["model_stats"][0]["inference_stats"]
        assert stats["compute_infer"] == {"count": 2, "ns": 2 * MS}


def test_a_server_is_stopped_while_a_stream_is_open(start_server):
    with start_server("--model=synthetic", "--synthetic=service=constant:1ms,gap=24h", "--stop-timeout=1") as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
        connection.request("POST", "/v1/chat/completions", json.dumps({**CHAT, "stream": True}).encode())
        assert b'"content":"token"' in connection.getresponse().read1()
    connection.close()
    assert server.process.returncode == 0
