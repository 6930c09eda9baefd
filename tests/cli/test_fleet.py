"""Loads sent by fleets: machines that join a run, here processes on this one. On Dask: `test_fleet_on_dask`."""

import collections
import contextlib
import re
import signal
import socket

import psutil
import pytest
import trustme
import yaml

from perfkit.result.file import read_result
from perfkit.result.interval_log import check_log
from tests.children import listening
from tests.conditions import until_ended, wait_until
from tests.json_server import serving, v2_handler

SECRET = "a-token-of-the-tests-1b7f"  # noqa: S105
TOKEN = {"PERFKIT_FLEET_TOKEN": SECRET}
FLEET = {"listen": "127.0.0.1:0", "workers": 2}
OPEN = {"open": {"rate": 300, "arrivals": "poisson"}}


class JoinedMachines:
    """Two machines on which `perfkit worker --join` was started."""

    names = ("alpha", "beta")

    def __init__(self, perfkit, url):
        self._running = {name: perfkit.start("worker", "--join", url, "--name", name, environ=TOKEN) for name in self.names}

    def workers(self, name):
        """The worker processes of a machine."""
        return self._running[name].descendants()

    def ports(self, name):
        """The local ports of its workers' connections."""
        found = set[int]()
        for process in self.workers(name):
            with contextlib.suppress(psutil.NoSuchProcess):  # one that ended since
                found.update(one.laddr.port for one in process.net_connections())
        return found

    def processes(self):
        return [one.process for one in self._running.values()]

    def kill(self, name):
        self._running.pop(name).signal(signal.SIGKILL)

    def check_end(self, code, said):
        """The machines that were not killed have ended with this exit code, and have said this."""
        for machine in self._running.values():
            finished = machine.finish()
            assert finished.code == code
            assert said in finished.stderr


@pytest.fixture
def start_fleet(perfkit, write_quick_scenario):
    """Starts a run and its two machines; the scenario, or sections of a quick one, may be given."""

    def start(scenario=None, **sections):
        run = perfkit.start("run", scenario or write_quick_scenario(fleet=FLEET, **sections), environ=TOKEN)
        run.wait_for_line("waiting for 2 machines")
        (url,) = re.findall(r"tcp://127\.0\.0\.1:\d+", run.seen[-1])
        return run, JoinedMachines(perfkit, url)

    return start


def test_the_parts_of_all_machines_add_up_to_the_load(start_fleet):
    measure = {"warmup": "0s", "requests": 900, "repetitions": 1, "workers": 2}
    run, machines = start_fleet(load=OPEN, measure=measure)
    run.wait_for_line("2 of 2")
    assert listening([run.process, *machines.processes()]) == {"127.0.0.1"}, "nothing of a fleet can be reached from another machine"
    finished = run.finish()
    machines.check_end(0, "the run is over")
    (point,) = finished.result["points"]
    assert point["requests"]["scheduled"] == 900
    assert point["generator"]["workers"] == 4
    assert point["generator"]["machine_cpu_share"] is None, "the driver's machine is not the generator"
    assert read_result(finished.folder)[0].points[0].machines is not None
    first, second = sorted(point["machines"], key=lambda one: one["name"])
    assert (first["name"], second["name"]) == tuple(sorted(machines.names))
    assert (first["workers"], second["workers"], first["lost"], second["lost"]) == (2, 2, [], [])
    assert first["requests"] + second["requests"] == point["requests"]["sent"] == 900 - point["requests"]["dropped"]
    assert first["times_ns"]["count"] + second["times_ns"]["count"] == point["response_time_ns"]["count"]
    # both are this machine: its clock is known to less than a round trip, even on a busy machine
    assert abs(first["clock_offset_ns"]) <= first["clock_bound_ns"]
    assert [one["name"] for one in finished.result["environment"]["fleet"]] == [m["name"] for m in point["machines"]]
    assert SECRET not in finished.stderr


def test_machines_divide_a_scan_and_the_load_of_its_warm_up(start_fleet):
    warm_up = {"load": {"closed": {"concurrency": 4, "think_time": "5ms"}}, "for": "200ms"}
    scan = {"closed": {"concurrency": {"to": 6, "over": "1s"}, "think_time": "5ms"}}
    run, machines = start_fleet(load=scan, measure={"warmup": warm_up})
    finished = run.finish()
    machines.check_end(0, "the run is over")
    (point,) = finished.result["points"]
    assert (point["load"], point["warmup_s"]) == ({"kind": "ramp", "start": 1, "concurrency": 6, "over_s": 1.0}, 1.2)
    assert [one["requests"] > 0 for one in point["machines"]] == [True, True]


def test_the_workers_of_all_machines_send_a_renewed_secret(start_fleet, write_scenario, tmp_path):
    ports = collections.defaultdict[str, set[int]](set)
    """The ports of the clients that sent a token."""

    class Handler(v2_handler(lambda _: None)):  # type: ignore[misc]  # made for this test
        def do_POST(self):
            ports[self.headers["authorization"]].add(self.client_address[1])
            super().do_POST()

    (tmp_path / "token").write_text("planted-1")
    token = {"headers": {"authorization": "Bearer ${TOKEN}"}, "secrets": {"TOKEN": {"file": "token", "every": "10ms"}}}
    with serving(Handler) as port:
        scenario = write_scenario(
            fleet=FLEET,
            telemetry=False,
            target={"url": f"http://127.0.0.1:{port}", "model": "m", **token},
            load={"closed": {"concurrency": 2, "think_time": "1ms"}},
            measure={"warmup": "0s", "duration": "1h", "repetitions": 1},
        )
        run, machines = start_fleet(scenario)

        def senders(token):
            return {name for name in machines.names if ports[f"Bearer {token}"] & machines.ports(name)}

        wait_until(lambda: senders("planted-1") == set(machines.names))
        (tmp_path / "next").write_text("planted-2")
        (tmp_path / "next").replace(tmp_path / "token")
        wait_until(lambda: senders("planted-2") == set(machines.names))
        run.signal(signal.SIGINT)
        finished = run.finish()
    assert finished.code == 130, finished.stderr
    assert not [file for file in finished.folder.rglob("*") if file.is_file() and b"planted" in file.read_bytes()]


def test_a_lost_machine_is_named_and_the_others_carry_the_load_of_the_next_point(start_fleet):
    measure = {"warmup": "0s", "duration": "2s", "repetitions": 2}
    run, machines = start_fleet(load=OPEN, measure=measure)
    other, name = machines.names
    run.wait_for_line("2 of 2")
    wait_until(lambda: machines.workers(name))
    workers = machines.workers(name)
    machines.kill(name)
    finished = run.finish()
    until_ended(workers)
    assert finished.code == 5
    first, second = finished.result["points"]
    (killed,) = [one for one in first["machines"] if one["name"] == name]
    assert (killed["requests"], len(killed["lost"])) == (0, 1)
    assert f"{name} was lost: its connection broke" in killed["lost"][0]
    (lost,) = [one["message"] for one in first["warnings"] if one["code"] == "worker_lost"]
    assert "its share of the load, 1 of 2, is missing" in lost
    assert [one["name"] for one in second["machines"]] == [other]
    assert "worker_lost" not in [one["code"] for one in second["warnings"]]
    machines.check_end(0, "the run is over")


def test_when_all_machines_are_lost_what_they_had_sent_is_kept(start_fleet):
    run, machines = start_fleet(load=OPEN, measure={"warmup": "0s", "duration": "1h", "repetitions": 2})
    run.wait_for_line("2 of 2")
    run.wait_for_pieces(1)
    workers = [process for name in machines.names for process in machines.workers(name)]
    for name in machines.names:
        machines.kill(name)
    finished = run.finish()
    until_ended(workers)
    assert finished.code == 5, finished.stderr
    (point,) = finished.result["points"]
    assert not point["valid"]
    assert point["requests"]["sent"] == sum(one["requests"] for one in point["machines"]) > 0
    assert [len(one["lost"]) for one in point["machines"]] == [1, 1]
    assert "is missing after the first" in point["machines"][0]["lost"][0]
    assert "no machine of the fleet is left" in finished.result["status_reason"]
    check_log(finished.folder, read_result(finished.folder)[0])


def test_of_a_worker_that_is_lost_on_a_machine_what_it_had_sent_counts(start_fleet):
    run, machines = start_fleet(load=OPEN, measure={"warmup": "0s", "duration": "6s", "repetitions": 1, "workers": 2})
    run.wait_for_line("2 of 2")
    run.wait_for_pieces(2)
    victim = next(one for one in machines.workers("beta") if "perfkit.workers.worker_process" in one.cmdline())
    victim.kill()
    finished = run.finish()
    machines.check_end(0, "the run is over")
    assert finished.code == 5, finished.stderr
    (point,) = finished.result["points"]
    alpha, beta = sorted(point["machines"], key=lambda one: one["name"])
    (lost,) = beta["lost"]
    assert f"(process {victim.pid} on beta) ended with signal 9" in lost
    assert ": its share of the load, 1 of 4, is missing after the first" in lost
    assert alpha["lost"] == []
    assert point["requests"]["sent"] == alpha["requests"] + beta["requests"]
    assert alpha["requests"] > beta["requests"] > alpha["requests"] / 2
    check_log(finished.folder, read_result(finished.folder)[0])


def test_when_the_driver_is_killed_the_machines_end_and_what_it_had_received_is_recovered(perfkit, start_fleet):
    measure = {"warmup": "0s", "duration": "1h", "repetitions": 1, "workers": 2}
    run, machines = start_fleet(load=OPEN, measure=measure)
    run.wait_for_line("2 of 2")
    run.wait_for_pieces(2)
    workers = [process for name in machines.names for process in machines.workers(name)]
    assert len(workers) >= 4
    run.signal(signal.SIGKILL)
    machines.check_end(6, "the connection to the driver broke")
    run.finish()
    until_ended(workers)
    seconds = run.wait_for_pieces(2)
    recovered = perfkit.run("recover", run.folder.with_name("out.partial"), "--no-report")
    assert recovered.code == 0, recovered.stderr
    result, folder = read_result(run.folder)
    (point,) = result.points
    assert (point.duration_s, point.requests.sent > 100 * seconds) == (seconds, True)
    check_log(folder, result)  # it has the same requests
    assert (folder / "latency.hlog").exists()


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


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("listen://[::1]:8790", {"kind": "worker", "listen": "[::1]:8790"}),
        ("listen://0.0.0.0:8790", {"kind": "worker", "listen": "0.0.0.0:8790"}),
        ("tcp://[::1]:8786", {"kind": "dask", "scheduler": "tcp://[::1]:8786"}),
        ("tls://host:8786", {"kind": "dask", "scheduler": "tls://host:8786"}),
    ],
)
def test_the_options_of_a_fleet_stand_in_the_scenario(perfkit, write_quick_scenario, url, expected):
    printed = perfkit.run("run", write_quick_scenario(), "--fleet", url, "--machines", 2, "--print-scenario")
    assert yaml.safe_load(printed.stdout)["fleet"] == {**expected, "workers": 2}


def test_an_address_that_no_fleet_can_have_is_refused(perfkit, write_quick_scenario):
    finished = perfkit.run("run", write_quick_scenario(), "--fleet", "http://host:8786")
    assert finished.code == 2
    assert "--fleet http://host:8786: expected listen://HOST:PORT" in finished.stderr


def test_machines_need_a_fleet(perfkit, write_quick_scenario):
    refused = perfkit.run("run", write_quick_scenario(), "--machines", 2)
    assert refused.code == 2
    assert "--machines 2: the scenario has no fleet: add --fleet listen://HOST:PORT" in refused.stderr
    own = perfkit.run("run", write_quick_scenario(fleet={"workers": 3}), "--machines", 2, "--print-scenario")
    assert yaml.safe_load(own.stdout)["fleet"]["workers"] == 2


def test_a_token_that_nobody_would_see_is_refused(perfkit, write_quick_scenario):
    refused = perfkit.run("run", write_quick_scenario(fleet=FLEET), "--quiet", environ={"PERFKIT_FLEET_TOKEN": ""})
    assert refused.code == 2
    assert "--quiet: the token that is made for the machines of the fleet would not be printed: set PERFKIT_FLEET_TOKEN" in refused.stderr


def test_a_machine_needs_a_token_and_a_driver(perfkit):
    assert "PERFKIT_FLEET_TOKEN" in perfkit.run("worker", "--join", "tcp://127.0.0.1:1").stderr
    finished = perfkit.run("worker", "--join", "tcp://127.0.0.1:1", "--join-within", "1ms", environ=TOKEN)
    assert finished.code == 6
    assert "tcp://127.0.0.1:1: cannot be joined" in finished.stderr
    assert perfkit.run("worker", "--join", "here", environ=TOKEN).code == 2


def test_a_machine_that_is_kept_serves_one_run_after_another_also_an_interrupted_one(perfkit, write_quick_scenario):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    fleet = {"kind": "worker", "listen": f"127.0.0.1:{port}", "workers": 1}
    load, measure = {"closed": {"concurrency": 2, "think_time": "1ms"}}, {"warmup": "0s", "repetitions": 1}
    machine = perfkit.start("worker", "--join", f"tcp://127.0.0.1:{port}", "--keep", "--name", "kept", environ=TOKEN)
    for window, code in (({"duration": "1h"}, 130), ({"requests": 50}, 0)):
        run = perfkit.start("run", write_quick_scenario(fleet=fleet, load=load, measure={**measure, **window}), environ=TOKEN)
        run.wait_for_line("kept (127.0.0.1) has joined, 1 of 1")
        if code:
            run.wait_for_pieces(1)
            run.signal(signal.SIGINT)
        finished = run.finish()
        assert {finished.result["status"] == "interrupted", finished.code == 130} == {code == 130}, finished.stderr
        (point,) = finished.result["points"]
        assert [one["name"] for one in point["machines"]] == ["kept"]
        assert point["machines"][0]["ok"] == point["requests"]["sent"] == window.get("requests", point["requests"]["sent"]) > 0
    machine.signal(signal.SIGTERM)
    assert machine.finish().code == 143
