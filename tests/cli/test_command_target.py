"""`perfkit run` on a server that the scenario's command starts."""

import re
import shlex
import signal
import sys

import psutil
import pytest

from tests.conditions import until_ended, wait_until
from tests.json_server import serving, v2_handler

PYTHON = shlex.quote(sys.executable)
LOAD = {"closed": {"concurrency": 1, "think_time": "1ms"}}
# more than are sent before the end of a server is noticed
MANY = 10_000


@pytest.fixture
def pids(tmp_path):
    """The file in which `tests.v2_process` notes the process of each start."""
    return tmp_path / "pids"


@pytest.fixture
def command(pids):
    return f"{PYTHON} -m tests.v2_process {{port}} {shlex.quote(str(pids))}"


def processes(pids):
    """The processes of all starts, as far as they are still there."""
    return [psutil.Process(pid) for pid in map(int, pids.read_text().split()) if psutil.pid_exists(pid)]


def target(command, **keys):
    return {"command": command, "model": "m", **keys}


def test_a_run_starts_the_server_waits_until_it_is_ready_and_ends_it(perfkit, write_scenario):
    command = f"{PYTHON} -m server_stub --http-port {{http_port}} --grpc-port {{grpc_port}} --metrics-port 0 --model simple"
    finished = perfkit.measure(write_scenario(target={"command": command, "model": "simple", "protocols": ["http", "grpc"]}), report=True)
    assert {(point["protocol"], point["requests"]["ok"]) for point in finished.result["points"]} == {("http", 50), ("grpc", 50)}
    described = finished.result["environment"]["target"]
    assert described["bundled_server"] is None
    assert described["command_server"]["ready_after_s"] > 0
    starting, ready = (line for line in finished.stderr.splitlines() if line.startswith("server: "))
    assert starting.startswith(f"server: starting `{PYTHON} -m server_stub --http-port ")
    assert starting.endswith("`, which has 5m until its model is ready")
    assert ready.startswith("server: ready after ")
    assert '"event": "ready"' in (finished.folder / "server.log").read_text()
    assert "Server, started by a command" in (finished.folder / "report.html").read_text()


def test_the_server_is_restarted_for_each_cold_start_and_none_is_left(perfkit, write_scenario, command, pids):
    scenario = write_scenario(
        target=target(command), load={"cold_start": {"by": "restart", "requests": 40}}, measure={"repetitions": 2}, telemetry=False
    )  # fmt: skip
    (point,) = perfkit.measure(scenario).result["summary"]
    assert point["requests"]["ok"] == 80
    for start in point["cold_start"]["starts"]:
        assert (start["unload_ns"], start["load_ns"]) == (None, None)
        assert 0 < start["ready_ns"] < start["first_answer_after_ns"]
    assert len(pids.read_text().split()) == 3, "one to read the metadata from, and one for each start"
    assert processes(pids) == []


@pytest.mark.parametrize(("load", "in_start"), [(LOAD, 1), ({"cold_start": {"by": "restart", "requests": MANY}}, 2)])
def test_a_server_that_ends_under_load_is_named_with_its_exit_code_and_last_lines(perfkit, write_scenario, command, load, in_start):
    measure = {"repetitions": 2} if "cold_start" in load else {"warmup": "0s", "requests": MANY, "repetitions": 1}
    scenario = write_scenario(target=target(f"{command} --ends-at 30 --in-start {in_start}"), load=load, measure=measure, telemetry=False)
    finished = perfkit.run("run", scenario)
    assert finished.code == 6, finished.stderr
    assert finished.result["status"] == "incomplete"
    assert finished.result["status_reason"] == "the target was lost: the server is gone: it ended with exit code 7; it said: no memory left"
    assert finished.result["points"][-1]["requests"]["ok"] == (28 if in_start == 1 else 29), "without the first, before the load"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("/no/such/server {port}", r"perfkit: `/no/such/server \d+` cannot be started: No such file or directory"),
        (
            "sh -c 'echo one; echo; echo two >&2; exit 3' {port}",
            r"perfkit: `sh -c .*` ended with exit code 3 before it was ready; it said: one / two",
        ),
        (
            "sh -c 'echo loading; sleep 600' {port}",
            r"perfkit: `sh -c .*` was not ready within 2s \(target.ready_within\): .* cannot be reached: .*; it said: loading",
        ),
    ],
)
def test_a_server_that_is_never_ready_is_named_with_the_reason(perfkit, write_scenario, command, said):
    finished = perfkit.run("run", write_scenario(target=target(command, ready_within="2s")))
    assert finished.code == 6
    assert re.fullmatch(said, finished.stderr.splitlines()[-1])
    assert not finished.folder.exists()


def test_a_server_at_the_url_that_the_command_did_not_start_is_not_measured(perfkit, write_scenario):
    with serving(v2_handler(lambda _: None)) as port:
        finished = perfkit.run("run", write_scenario(target=target("sleep 600", url=f"http://127.0.0.1:{port}")))
    assert finished.code == 6
    assert "`sleep 600` was not started: another server is ready at its address" in finished.stderr


def test_a_command_may_listen_at_the_url_that_it_names(perfkit, write_scenario, command, pids):
    with serving(v2_handler(lambda _: None)) as port:  # free from here on
        pass
    scenario = write_scenario(
        target=target(command.replace("{port}", str(port)), url=f"http://127.0.0.1:{port}"), load=LOAD, telemetry=False
    )
    assert perfkit.measure(scenario).result["environment"]["target"]["url"] == f"http://127.0.0.1:{port}"
    assert processes(pids) == []


@pytest.mark.parametrize(("number", "is_ready"), [(signal.SIGINT, False), (signal.SIGTERM, True)])
def test_a_signal_leaves_no_server(perfkit, write_scenario, command, pids, number, is_ready):
    never_ready = f"sh -c 'echo $$ > {shlex.quote(str(pids))}; sleep 600' {{port}}"
    scenario = write_scenario(
        target=target(command if is_ready else never_ready),
        load=LOAD,
        measure={"warmup": "0s", "duration": "10m", "repetitions": 2},
        telemetry=False,
    )
    running = perfkit.start("run", scenario)
    running.wait_for_line("target: http" if is_ready else "server: starting")
    wait_until(lambda: pids.exists() and pids.read_text())
    (server,) = processes(pids)
    running.signal(number)
    assert running.finish().code == 128 + number
    until_ended([server])


def test_a_server_ends_with_a_perfkit_that_is_killed(perfkit, write_scenario, command, pids):
    measure = {"warmup": "0s", "duration": "10m", "repetitions": 1}
    scenario = write_scenario(target=target(command), load=LOAD, measure=measure, telemetry=False)
    running = perfkit.start("run", scenario)
    running.wait_for_line("target: http")
    (server,) = processes(pids)
    running.process.kill()
    running.process.wait()
    until_ended([server])
