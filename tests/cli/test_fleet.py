"""Loads sent by fleets: machines that join a run, here processes on this one."""

import json
import re
import signal
import socket

import psutil
import pytest
import trustme
import yaml

from perfkit.result.file import read_result
from tests.conditions import until_ended

TOKEN = {"PERFKIT_FLEET_TOKEN": "a token of the tests"}
FLEET = {"listen": "127.0.0.1:0", "workers": 2}
OPEN = {"open": {"rate": 300, "arrivals": "poisson"}}


@pytest.fixture
def start_fleet(perfkit, write_quick_scenario):
    """Starts a run and the two machines that join it; the sections of its scenario may be given."""

    def start(**sections):
        scenario = write_quick_scenario(fleet=sections.pop("fleet", FLEET), **sections)
        run = perfkit.start("run", scenario, environ=TOKEN)
        run.wait_for_line("waiting for 2 machines")
        (url,) = re.findall(r"tcp://127\.0\.0\.1:\d+", run.seen[-1])
        return run, [perfkit.start("worker", "--join", url, "--name", name, environ=TOKEN) for name in ("alpha", "beta")]

    return start


def test_the_parts_of_all_machines_add_up_to_the_load(start_fleet):
    measure = {"warmup": "0s", "requests": 900, "repetitions": 1, "workers": 2}
    run, machines = start_fleet(load=OPEN, measure=measure)
    finished = run.finish()
    ended = [machine.finish() for machine in machines]
    (point,) = finished.result["points"]
    assert point["requests"]["scheduled"] == 900
    assert point["generator"]["workers"] == 4
    assert point["generator"]["machine_cpu_share"] is None, "the driver's machine is not the generator"
    assert read_result(finished.folder)[0].points[0].machines is not None
    alpha, beta = sorted(point["machines"], key=lambda one: one["name"])
    assert (alpha["name"], beta["name"]) == ("alpha", "beta")
    assert (alpha["workers"], beta["workers"], alpha["lost"], beta["lost"]) == (2, 2, [], [])
    assert alpha["requests"] + beta["requests"] == point["requests"]["sent"] == 900 - point["requests"]["dropped"]
    assert alpha["times_ns"]["count"] + beta["times_ns"]["count"] == point["response_time_ns"]["count"]
    # both are this machine: its clock is known to less than a round trip, even on a busy machine
    assert abs(alpha["clock_offset_ns"]) <= alpha["clock_bound_ns"]
    assert [one["name"] for one in finished.result["environment"]["fleet"]] == [m["name"] for m in point["machines"]]
    assert [one.code for one in ended] == [0, 0]
    assert "the run is over" in ended[0].stderr


def test_a_lost_machine_is_named_and_the_others_carry_the_load_of_the_next_point(start_fleet):
    measure = {"warmup": "0s", "duration": "2s", "repetitions": 2}
    run, machines = start_fleet(load=OPEN, measure=measure)
    by_name = dict(zip(("alpha", "beta"), machines, strict=True))
    run.wait_for_line("2 of 2")
    while not (workers := by_name["beta"].descendants()):
        pass
    by_name["beta"].signal(signal.SIGKILL)
    finished = run.finish()
    until_ended(workers)
    assert finished.code == 5
    first, second = finished.result["points"]
    (beta,) = [one for one in first["machines"] if one["name"] == "beta"]
    assert (beta["requests"], len(beta["lost"])) == (0, 1)
    assert "(on beta) was lost: its connection broke" in beta["lost"][0]
    (lost,) = [one["message"] for one in first["warnings"] if one["code"] == "worker_lost"]
    assert "its share of the load, 1 of 2, is missing" in lost
    assert [one["name"] for one in second["machines"]] == ["alpha"]
    assert "worker_lost" not in [one["code"] for one in second["warnings"]]
    assert by_name["alpha"].finish().code == 0


def test_the_machines_end_when_the_driver_is_killed(start_fleet):
    run, machines = start_fleet(load=OPEN, measure={"warmup": "0s", "duration": "1h", "repetitions": 1})
    run.wait_for_line("2 of 2")
    workers = list[psutil.Process]()
    while len(workers) < 2:
        workers = [process for machine in machines for process in machine.descendants()]
    run.signal(signal.SIGKILL)
    for machine in machines:
        finished = machine.finish()
        assert finished.code == 6
        assert "the connection to the driver broke" in finished.stderr
    run.finish()
    until_ended(workers)


def test_the_connection_may_be_encrypted(perfkit, write_quick_scenario, tmp_path):
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    fleet = {**FLEET, "workers": 1, "tls_cert": "cert.pem", "tls_key": "key.pem"}
    load = {"closed": {"concurrency": 2}}
    run = perfkit.start(
        "run", write_quick_scenario(fleet=fleet, load=load, measure={"warmup": "0s", "requests": 50, "repetitions": 1}), environ=TOKEN
    )
    run.wait_for_line("--tls-ca FILE")
    (url,) = re.findall(r"tcp://127\.0\.0\.1:\d+", run.seen[-1])
    plain = perfkit.run("worker", "--join", url, environ=TOKEN)
    assert plain.code == 6
    assert "or one with TLS" in plain.stderr
    machine = perfkit.start("worker", "--join", url, "--tls-ca", tmp_path / "ca.pem", environ=TOKEN)
    finished = run.finish()
    assert finished.result["points"][0]["machines"][0]["ok"] == 50
    assert machine.finish().code == 0


def test_a_run_whose_machines_do_not_come_says_so(perfkit, write_quick_scenario):
    finished = perfkit.run("run", write_quick_scenario(fleet={**FLEET, "join_within": "300ms"}), environ=TOKEN)
    assert finished.code == 5
    assert (
        "0 of 2 machines joined the fleet within 0.3 s; start `perfkit worker` on the others, or raise fleet.join_within" in finished.stderr
    )


@pytest.mark.parametrize("listen", ["[::1]:8790", "0.0.0.0:8790"])
def test_the_options_of_a_fleet_stand_in_the_scenario(perfkit, write_quick_scenario, listen):
    printed = perfkit.run("run", write_quick_scenario(), "--fleet", f"listen://{listen}", "--machines", 2, "--print-scenario")
    assert yaml.safe_load(printed.stdout)["fleet"] == {"listen": listen, "workers": 2}


def test_a_machine_needs_a_token_and_a_driver(perfkit):
    assert "PERFKIT_FLEET_TOKEN" in perfkit.run("worker", "--join", "tcp://127.0.0.1:1").stderr
    finished = perfkit.run("worker", "--join", "tcp://127.0.0.1:1", "--join-within", "1ms", environ=TOKEN)
    assert finished.code == 6
    assert "tcp://127.0.0.1:1: cannot be joined" in finished.stderr
    assert perfkit.run("worker", "--join", "here", environ=TOKEN).code == 2


def test_a_machine_that_is_kept_serves_one_run_after_another(perfkit, write_quick_scenario, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    fleet = {"kind": "worker", "listen": f"127.0.0.1:{port}", "workers": 1}
    scenario = write_quick_scenario(
        fleet=fleet, load={"closed": {"concurrency": 2}}, measure={"warmup": "0s", "requests": 50, "repetitions": 1}
    )
    machine = perfkit.start("worker", "--join", f"tcp://127.0.0.1:{port}", "--keep", "--name", "kept", environ=TOKEN)
    for number in (1, 2):
        run = perfkit.start("run", scenario, "--out", tmp_path / f"run-{number}", environ=TOKEN)
        run.wait_for_line("kept (127.0.0.1) has joined, 1 of 1")
        run.finish()
        (point,) = json.loads((tmp_path / f"run-{number}" / "result.json").read_text())["points"]
        assert [(one["name"], one["ok"]) for one in point["machines"]] == [("kept", 50)]
    machine.signal(signal.SIGTERM)
    assert machine.finish().code == 143
