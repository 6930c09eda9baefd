"""Trial requests: what may pass is sent again, and what the server or a proxy answers instead is told."""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import web

from perfkit.errors import ModelMismatchError, TargetError
from perfkit.measurement.target_metadata import TrialRequests
from perfkit.target.address import Address
from perfkit.transport.grpc.calls import RefusedError
from perfkit.transport.options import TransportOptions
from tests.clocks import SettableClock
from tests.measurement.test_target_probe import METADATA, TENSOR, Server, ask, engine, serving
from tests.transport.clients import client_of

__all__ = ["engine"]  # a fixture
DECLARED = {"x": {"value": [1, 2], "datatype": "INT32", "shape": [2]}}
BAD_GATEWAY = (
    "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body><center><h1>502 Bad Gateway</h1></center><hr>nginx</body></html>"
)


class Failing(Server):
    """Refuses its first infer requests."""

    def __init__(self, times, status=500, error="the disk is full"):
        super().__init__()
        self.left, self.status, self.error = times, status, error
        self.asked = 0

    async def infer(self, request):
        self.asked += 1
        if self.left:
            self.left -= 1
            if self.status == "reset":
                request.transport.abort()
            return web.json_response({"error": self.error}, status=500 if self.status == "reset" else self.status)
        return await super().infer(request)


class Restricted(Server):
    """Has one path that a proxy, or the server, refuses."""

    def __init__(self, path, status, text):
        super().__init__()
        self.path, self.status, self.text = path, status, text

    def routes(self):
        routes = super().routes()
        return [route if route.path != self.path else web.get(self.path, self.refuse) for route in routes]

    async def refuse(self, request):
        return web.Response(status=self.status, text=self.text)


@pytest.mark.parametrize("status", [500, 503, 429, 400])
@pytest.mark.parametrize("times", [1, 3])
def test_a_trial_request_that_fails_for_a_passing_reason_is_sent_again_with_a_warning(engine, tmp_path, times, status):
    server = Failing(times, status)
    (warning,) = ask(server, engine, tmp_path).warnings
    assert (warning.code, server.asked) == ("probe_retried", times + 1)
    assert f"failed {'once' if times == 1 else '3 times'}" in warning.message
    assert f"HTTP {status}: the disk is full" in warning.message


def test_a_trial_request_whose_connection_is_lost_is_sent_again(engine, tmp_path):
    server = Failing(2, "reset")  # the wire engine itself sends a request again once, if a reused connection was closed
    (warning,) = ask(server, engine, tmp_path).warnings
    assert (warning.code, server.asked) == ("probe_retried", 3)


def test_after_four_failed_trial_requests_the_target_is_reported_with_its_words(engine, tmp_path):
    server = Failing(100)
    with pytest.raises(TargetError, match=r"the probe request failed: HTTP 500: the disk is full \(in each of 4 attempts\)"):
        ask(server, engine, tmp_path)
    assert server.asked == 4


def test_a_request_that_the_server_always_calls_wrong_is_a_mismatch_after_four_attempts(engine, tmp_path):
    server = Failing(100, 400, "unexpected shape")
    with pytest.raises(ModelMismatchError, match=r"HTTP 400: unexpected shape \(in each of 4 attempts\)"):
        ask(server, engine, tmp_path)
    assert server.asked == 4


class FailingMlserver(Failing):
    """Does not announce binary tensors, and may take them."""

    extensions: tuple[str, ...] = ()

    def __init__(self, times, *, is_binary_taken):
        super().__init__(times)
        self.is_binary_taken = is_binary_taken

    async def infer(self, request):
        if "Inference-Header-Content-Length" in request.headers and not self.is_binary_taken:
            return web.json_response({"error": "Traceback"}, status=500)
        return await super().infer(request)


@pytest.mark.parametrize(
    ("is_binary_taken", "times", "codes"),
    [(True, 0, []), (True, 1, ["probe_retried"]), (False, 0, ["json_tensors"]), (False, 1, ["json_tensors", "probe_retried"])],
)
def test_a_failure_in_passing_is_told_from_a_server_that_takes_only_json(engine, tmp_path, is_binary_taken, times, codes):
    probed = ask(FailingMlserver(times, is_binary_taken=is_binary_taken), engine, tmp_path)
    assert [warning.code for warning in probed.warnings] == codes
    assert bool(probed.requests[0].plain_inputs) == ("json_tensors" in codes)


@pytest.mark.parametrize(("status", "error"), [(422, ModelMismatchError), (404, TargetError), (501, TargetError)])
def test_a_trial_request_that_is_itself_wrong_is_sent_once(engine, tmp_path, status, error):
    server = Failing(1, status)
    with pytest.raises(error, match=f"HTTP {status}: the disk is full"):
        ask(server, engine, tmp_path)
    assert server.asked == 1


def test_a_refusal_over_grpc_that_does_not_pass_is_told_with_the_number_of_attempts():
    async def call():
        raise RefusedError(Address("grpc", "ingress", 443), "ServerMetadata", "UNAVAILABLE: no healthy upstream")

    with pytest.raises(TargetError, match=r"UNAVAILABLE: no healthy upstream \(in each of 4 attempts\)"):
        TrialRequests(SettableClock()).run(call).send(None)


def test_the_share_of_runs_that_a_failing_target_ends_is_its_share_to_the_fourth_power():
    # each of 2^4 patterns of success and failure once: with a share of one half, one in sixteen fails
    clock, ended = SettableClock(), 0
    for pattern in range(16):
        outcomes = iter([bool(pattern >> attempt & 1) for attempt in range(4)])

        async def call(outcomes=outcomes):
            if next(outcomes):
                raise TargetError("no", may_pass=True)
            return 1

        coroutine = TrialRequests(clock).run(call)
        try:
            coroutine.send(None)
        except StopIteration:
            pass
        except TargetError:
            ended += 1
    assert ended == 1
    assert clock.ns > 0


@pytest.mark.parametrize("path", ["/v2", "/v2/models/m", "/v2/models/m/ready", "/v2/models/m/config"])
@pytest.mark.parametrize("status", [500, 503])
def test_any_call_before_the_load_that_fails_in_passing_is_made_again(engine, tmp_path, path, status):
    class Flaky(Server):
        def routes(self):
            routes = super().routes()
            return [route if route.path != path else web.get(path, self.fail_first(route.handler)) for route in routes]

        def fail_first(self, handler):
            answers = iter([web.json_response({"error": "busy"}, status=status)])

            async def answer(request):
                return next(answers, None) or await handler(request)

            return answer

    (warning,) = ask(Flaky(), engine, tmp_path).warnings
    assert (warning.code, "failed once" in warning.message, f"HTTP {status}: busy" in warning.message) == ("probe_retried", True, True)


@pytest.mark.parametrize("path", ["/v2", "/v2/models/m", "/v2/models/m/ready"])
@pytest.mark.parametrize(
    ("status", "text", "told"),
    [
        (403, '{"error":"This API is restricted, expecting header \'k\'"}', "is refused: HTTP 403: This API is restricted, expecting header 'k': give"),
        (401, "", "is refused: HTTP 401: give the credentials .* target.headers"),
        (502, BAD_GATEWAY, "behind a proxy, is not available: .* returned HTTP 502: 502 Bad Gateway 502 Bad Gateway nginx"),
        (504, "upstream request timeout", "not available: .* returned HTTP 504: upstream request timeout"),
    ],
)  # fmt: skip
def test_a_restricted_endpoint_and_a_proxy_s_error_are_told_with_their_words(engine, tmp_path, path, status, text, told):
    with pytest.raises(TargetError, match=told) as caught:
        ask(Restricted(path, status, text), engine, tmp_path)
    assert "not a v2 server" not in str(caught.value)


def test_the_words_of_a_refusal_are_cut(engine, tmp_path):
    with pytest.raises(TargetError, match=r"HTTP 403: x{200}") as caught:
        ask(Restricted("/v2", 403, "x" * 100_000), engine, tmp_path)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (403, "access to the statistics of model 'm' is refused: HTTP 403: closed"),
        (500, "the statistics of model 'm' could not be read: HTTP 500: closed"),
        (404, ""),
    ],
)
def test_statistics_that_are_refused_are_told_from_missing_ones(engine, status, told):
    class WithStatistics(Restricted):
        def routes(self):
            return [*super().routes(), web.get(self.path, self.refuse)]

    async def main():
        async with serving(WithStatistics("/v2/models/m/stats", status, "closed")) as address:
            transport = client_of(engine, address, TransportOptions(max_connections=2, timeout_ns=10**10), time.monotonic_ns)
            async with contextlib.aclosing(transport):
                return await transport.model_statistics("m", "")

    if told:
        with pytest.raises(TargetError, match=told):
            asyncio.run(main())
    else:
        assert asyncio.run(main()) == ()


def test_a_server_that_restricts_its_own_description_is_measured_where_the_scenario_declares_every_input(engine, tmp_path):
    probed = ask(Restricted("/v2", 403, "closed"), engine, tmp_path, inputs=DECLARED)
    assert (probed.warnings, probed.name) == ((), "")
    assert "its name and extensions (" in probed.note
    assert "HTTP 403: closed" in probed.note
    with pytest.raises(TargetError, match="closed"):
        ask(Restricted("/v2", 403, "closed"), engine, tmp_path, inputs={"x": {"value": [1, 2], "datatype": "INT32"}})


@pytest.mark.parametrize("status", [404, 403])
def test_a_server_without_metadata_is_measured_where_the_scenario_declares_every_input(engine, tmp_path, status):
    path = "/v2/models/m"
    probed = ask(Restricted(path, status, "closed"), engine, tmp_path, inputs=DECLARED)
    (warning,) = probed.warnings
    assert warning.code == "no_metadata"
    assert f"HTTP {status}: closed" in warning.message
    assert [tensor.shape for tensor in probed.requests[0].inputs] == [(2,)]
    with pytest.raises(TargetError, match="closed"):
        ask(Restricted(path, status, "closed"), engine, tmp_path, inputs={"x": {"value": [1, 2], "datatype": "INT32"}})


def test_a_refusal_of_a_server_without_metadata_names_both_reasons(engine, tmp_path):
    class Unknown(Restricted):
        async def infer(self, request):
            return web.json_response({"error": "what model"}, status=404)

    with pytest.raises(TargetError, match=r"HTTP 404: what model\. The server does not describe .* HTTP 404: no such model"):
        ask(Unknown("/v2/models/m", 404, '{"error":"no such model"}'), engine, tmp_path, inputs=DECLARED)


def test_expected_outputs_that_only_the_scenario_describes_are_checked(engine, tmp_path):
    server = Server()
    server.metadata = {**METADATA, "inputs": [], "outputs": []}
    expected: dict[str, Any] = {"value": [1, 2], "datatype": "INT32", "shape": [2]}
    assert ask(server, engine, tmp_path, {"outputs": {"y": expected}}, inputs=DECLARED).requests
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("y", {"value": [1, 3]}, r"holds 1 wrong values in output 'y': the one at \[1\] is 2, where 3 is expected"),
        ("y", {"datatype": "FP32"}, "holds INT32 in output 'y', where FP32 is expected"),
        ("y", {"value": [1], "shape": [1]}, r"has shape \[2\] in output 'y', where \[1\] is expected"),
        ("z", {}, "lacks the output z"),
    ]
    for name, change, fault in cases:
        with pytest.raises(TargetError, match=fault):
            ask(server, engine, tmp_path, {"outputs": {name: expected | change}}, inputs=DECLARED)
    with pytest.raises(
        ModelMismatchError, match=r"check\.outputs\.y: the server does not say what model 'm' returns: give datatype and shape"
    ):
        ask(server, engine, tmp_path, {"outputs": {"y": {"value": [1, 2]}}}, inputs=DECLARED)


class Ensemble(Server):
    """Its model runs two others, of which one is an ensemble; every configuration is given on the second attempt."""

    steps: Mapping[str, list[str]] = {"m": ["resize", "inner"], "inner": ["classify", "resize"], "resize": [], "classify": []}

    def __init__(self):
        super().__init__()
        self.asked: set[str] = set()

    def routes(self):
        routes = [route for route in super().routes() if not route.path.endswith("/config")]
        return [*routes, web.get("/v2/models/{name}/config", self.configuration)]

    async def configuration(self, request):
        name = request.match_info["name"]
        if name not in self.asked:
            self.asked.add(name)
            return web.json_response({"error": "busy"}, status=503)
        return web.json_response(
            {"ensemble_scheduling": {"step": [{"model_name": step, "model_version": -1} for step in self.steps[name]]}}
        )


def test_the_models_of_an_ensemble_and_of_its_steps_are_found(engine, tmp_path):
    probed = ask(Ensemble(), engine, tmp_path)
    assert [model.name for model in probed.composing_models] == ["resize", "inner", "classify"]
    assert [warning.code for warning in probed.warnings] == ["probe_retried"]
    assert "failed 4 times" in probed.warnings[0].message


class WithCalls(Ensemble):
    """Its model calls others itself; they are ready in every version but the ninth."""

    def routes(self):
        routes = [route for route in super().routes() if not route.path.endswith("/ready")]
        return [
            *routes,
            web.get("/v2/health/ready", self.health),
            web.get("/v2/models/{name}{version:(/versions/[0-9]+)?}/ready", self.model),
        ]

    async def model(self, request):
        is_known = request.match_info["name"] in self.steps and not request.match_info["version"].endswith("/9")
        return web.Response(status=200 if is_known else 400)


def test_models_that_the_scenario_names_are_found_with_their_own_steps(engine, tmp_path):
    server = WithCalls()
    server.steps = {"m": [], "inner": ["classify"], "classify": [], "resize": []}
    probed = ask(server, engine, tmp_path, target={"composing_models": ["inner", "resize:2"]})
    assert [(model.name, model.version) for model in probed.composing_models] == [("inner", ""), ("resize", "2"), ("classify", "")]


@pytest.mark.parametrize(("name", "named"), [("nobody", "'nobody': "), ("inner:9", "'inner' in version 9: ")])
def test_a_named_model_that_is_not_ready_is_refused_with_the_key(engine, tmp_path, name, named):
    with pytest.raises(ModelMismatchError, match=f"target.composing_models: the server has no ready model {named}"):
        ask(WithCalls(), engine, tmp_path, target={"composing_models": [name]})


class WithBias(Server):
    """Its model's second input is optional, as Triton's configuration says it."""

    metadata = {**METADATA, "inputs": [TENSOR, {**TENSOR, "name": "bias"}]}  # noqa: RUF012 - read alone

    async def configuration(self, request):
        return web.json_response({"max_batch_size": 0, "input": [{"name": "x"}, {"name": "bias", "optional": True}]})


@pytest.mark.parametrize("omitted", ["omit", {"generate": "omit"}])
def test_an_optional_input_can_be_left_out_and_a_required_one_cannot(engine, tmp_path, omitted):
    assert [tensor.name for tensor in ask(WithBias(), engine, tmp_path).requests[0].inputs] == ["x", "bias"]
    assert [tensor.name for tensor in ask(WithBias(), engine, tmp_path, inputs={"bias": omitted}).requests[0].inputs] == ["x"]
    with pytest.raises(ModelMismatchError, match=r"workload\.inputs\.x: model 'm' requires this input"):
        ask(WithBias(), engine, tmp_path, inputs={"x": omitted})
    with pytest.raises(ModelMismatchError, match="the model has no input 'bia'; did you mean 'bias'"):
        ask(WithBias(), engine, tmp_path, inputs={"bia": omitted})
