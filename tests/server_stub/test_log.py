"""The log on stderr, as text and as JSON."""

import asyncio
import datetime
import http.client
import json
import sys

import pytest
import tritonclient.grpc

from server_stub.log import Log
from server_stub.settings import Settings
from tests import forked

NOON = datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.UTC)


class Lines:
    """A log, and the lines it wrote."""

    def __init__(self, *, is_json=False, **settings):
        self.settings, self.text = Settings(), ""
        self.settings.set_log(settings)
        self.out = Log(self.settings, is_json=is_json, write=self._write, now=lambda: NOON)

    def _write(self, line):
        assert line.endswith("\n")
        self.text += line


def fail():
    raise ValueError("oh\nno")


def internal_error():
    try:
        fail()
    except ValueError as error:
        return error


def test_text_lines_are_messages():
    log_lines = Lines()
    log_lines.out.info("ready", "serving m", models=["m"])
    log_lines.out.info("stopping", why="SIGTERM")
    log_lines.out.request("HTTP", "GET /v2", "200", 1500)
    log_lines.out.internal_error(internal_error())
    first, second, *_, last = log_lines.text.splitlines()
    assert (first, second, last) == ("serving m", "Traceback (most recent call last):", "no")


def test_control_characters_in_names_do_not_start_new_lines():
    log_lines = Lines()
    log_lines.out.info("loaded", "loaded a\nserving \x1b[31mevil")
    assert log_lines.text == "loaded a\\nserving \\x1b[31mevil\n"


def test_json_lines_are_objects():
    log_lines = Lines(is_json=True, log_verbose_level=1)
    log_lines.out.info("ready", "serving m", models=["m"])
    log_lines.out.info("stopping", why="SIGTERM")
    log_lines.out.request("HTTP", "GET /v2", "200", 1500)
    log_lines.out.warning("w", "beware")
    log_lines.out.internal_error(internal_error())
    ready, stopping, request, warning, failed = (json.loads(line) for line in log_lines.text.splitlines())
    time = "2026-01-02T12:00:00+00:00"
    assert ready == {"time": time, "level": "info", "event": "ready", "message": "serving m", "models": ["m"]}
    assert stopping == {"time": time, "level": "info", "event": "stopping", "why": "SIGTERM"}
    assert request == {
        "time": time,
        "level": "verbose",
        "event": "request",
        "message": "HTTP GET /v2: 200 in 0.002 ms",
        "protocol": "HTTP",
        "request": "GET /v2",
        "status": "200",
        "duration_ns": 1500,
    }
    assert (warning["level"], warning["message"]) == ("warning", "beware")
    assert (failed["level"], failed["message"]) == ("error", "ValueError: oh\nno")
    assert failed["traceback"].startswith("Traceback (most recent call last):\n")


@pytest.mark.parametrize("is_json", [False, True])
def test_each_level_can_be_turned_off(is_json):
    log_lines = Lines(is_json=is_json, log_info=False, log_warning=False, log_error=False)
    log_lines.out.info("ready", "serving m")
    log_lines.out.warning("w", "beware")
    log_lines.out.internal_error(internal_error())
    log_lines.out.request("HTTP", "GET /v2", "200", 1500)
    assert log_lines.text == ""


def test_event_loop_exceptions_are_logged():
    log_lines = Lines()
    loop = asyncio.new_event_loop()
    loop.close()
    log_lines.out.handle_loop_exception(loop, {"message": "Task exception was never retrieved", "exception": internal_error()})
    assert log_lines.text.endswith("ValueError: oh\nno\n")
    log_lines.out.handle_loop_exception(loop, {"message": "something"})
    assert log_lines.text.endswith("RuntimeError: something\n")


def test_the_lifecycle_is_logged_as_json(start_server):
    started = start_server("--model", "simple", "--log-format", "json")
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{started.grpc_port}") as client:
        client.update_log_settings({"log_verbose_level": 1})
        assert client.is_server_live()
        connection = http.client.HTTPConnection("127.0.0.1", started.http_port, timeout=60)
        for method, path in (("GET", "/v2"), ("POST", "/v2/models/simple/infer"), ("GET", "/v2/nope")):
            connection.request(method, path, b"{}" if method == "POST" else None)
            connection.getresponse().read()
        connection.close()
        client.update_log_settings({"log_verbose_level": 0})
    code, stdout, stderr = started.end()
    assert (code, stdout) == (0, "")
    log_lines = [json.loads(line) for line in stderr.splitlines()]
    assert [line["event"] for line in log_lines if line["event"] != "request"] == ["ready", "stopping", "stopped"]
    assert log_lines[0]["http_port"] == started.http_port
    asked = [(line["protocol"], line["request"], line["status"]) for line in log_lines if line["event"] == "request"]
    assert [one for one in asked if one[1] != "LogSettings"] == [
        ("gRPC", "ServerLive", "OK"),
        ("HTTP", "GET /v2", "200"),
        ("HTTP", "POST /v2/models/simple/infer", "500"),
        ("HTTP", "GET /v2/nope", "404"),
    ]


def test_the_final_error_is_logged_as_json():
    command = [sys.executable, "-m", "server_stub", "--log-format", "json", "--model-repository", "server_stub"]
    ended = forked.run(command, capture_output=True, text=True, timeout=100, check=False)
    line = json.loads(ended.stderr)
    assert (ended.returncode, line["event"], line["level"]) == (2, "failed", "error")
    assert line["message"].startswith("--model-repository server_stub: it holds no model")
