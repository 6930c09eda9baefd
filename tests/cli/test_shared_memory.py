"""`perfkit run` with tensors in shared memory: right answers, only its own regions touched, and nothing left behind."""

import json
import os
import signal
import subprocess
import sys
import types

import numpy as np
import pytest
import tritonclient.http
from tritonclient.utils import shared_memory

from perfkit.machine.shared_memory import FOLDER
from tests import forked

CLOSED = {"closed": {"concurrency": [1, 4], "think_time": "1ms"}}


@pytest.fixture
def arrays(tmp_path):
    """Inputs of the model `simple` and the sums and differences that it answers, for three requests in turn."""
    random = np.random.default_rng(1)
    first, second = random.integers(-1000, 1000, (2, 3, 16)).astype(np.int32)
    for name, values in {"INPUT0": first, "INPUT1": second, "OUTPUT0": first + second, "OUTPUT1": first - second}.items():
        for number, value in enumerate(values):
            np.save(tmp_path / f"{name}-{number}.npy", value)

    def sections(*names):
        return {name: {"file": [f"{name}-{number}.npy" for number in range(3)]} for name in names}

    return {
        "workload": {"inputs": sections("INPUT0", "INPUT1")},
        "check": {"share": "100%", "at_most": "100000/s", "outputs": sections("OUTPUT0", "OUTPUT1")},
    }


@pytest.fixture(scope="module")
def sharing():
    """A server that lets clients register shared memory."""
    command = [sys.executable, "-m", "server_stub", "--http-port=0", "--grpc-port=0", "--exit-with-stdin", "--model", "simple",
               "identity_fp32", "--allow-client-shm"]  # fmt: skip
    with forked.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        ready = json.loads(process.stdout.readline())
        yield types.SimpleNamespace(
            authority=f"127.0.0.1:{ready['http_port']}",
            urls={"http": f"http://127.0.0.1:{ready['http_port']}", "grpc": f"grpc://127.0.0.1:{ready['grpc_port']}"},
        )
        process.stdin.close()


def regions(server):
    with tritonclient.http.InferenceServerClient(server.authority) as client:
        return {one["name"] for one in client.get_system_shared_memory_status()}


def objects_of(pid):
    return list(FOLDER.glob(f"perfkit-{pid}-*"))


@pytest.mark.parametrize(
    ("way", "load"), [({}, CLOSED), ({}, {"open": {"rate": 300}}), ({"outputs": False}, CLOSED), ({"inputs": False}, CLOSED)]
)
def test_answers_are_right_over_both_protocols_and_nothing_remains(perfkit, write_scenario, arrays, sharing, way, load):
    shared, target = {"kind": "system", **way}, {"model": "simple", "urls": sharing.urls}
    path = write_scenario(target=target, shared_memory=shared, load=load, telemetry=False, **arrays)
    finished = perfkit.measure(path)
    for point in finished.result["points"]:
        assert point["checked"] > 0
        assert point["requests"]["invalid_output"] == 0
    for protocol in ("http", "grpc"):
        described = finished.result["environment"]["target"]["protocols"][protocol]["shared_memory"]
        assert described["kind"] == "system"
        assert (described["input_bytes"] > 0) is way.get("inputs", True)
        assert (described["output_bytes"] > 0) is way.get("outputs", True)
    assert objects_of(os.getpid()) == []


def test_the_outputs_of_input_data_have_room_for_those_of_the_largest_step(perfkit, write_scenario, sharing, tmp_path):
    tensors = [{"content": [float(size)] * size, "shape": [size]} for size in (2, 50, 1000)]
    data = {"data": [{"INPUT0": one} for one in tensors], "validation_data": [{"OUTPUT0": one} for one in tensors]}
    (tmp_path / "data.json").write_text(json.dumps(data))
    path = write_scenario(
        target={"model": "identity_fp32", "urls": sharing.urls},
        workload={"data": "data.json"},
        shared_memory="system",
        check={"share": "100%", "at_most": "1000000/s", "tolerance": 0},
        load={"closed": {"concurrency": 2}},
        measure={"warmup": "0s", "requests": 30, "repetitions": 1},
        telemetry=False,
    )
    for point in perfkit.measure(path).result["points"]:
        assert point["requests"]["ok"] == 30
        assert point["checked"] > 10


def test_wrong_answers_in_shared_memory_are_found(perfkit, write_scenario, arrays, sharing):
    outputs = arrays["check"]["outputs"]
    outputs["OUTPUT0"], outputs["OUTPUT1"] = outputs["OUTPUT1"], outputs["OUTPUT0"]
    target = {"model": "simple", "url": sharing.urls["http"]}
    finished = perfkit.run("run", write_scenario(target=target, shared_memory="system", telemetry=False, **arrays))
    assert finished.code == 6
    assert "wrong values in output 'OUTPUT0'" in finished.stderr


def test_workers_in_processes_of_their_own_check_answers_too(perfkit, write_scenario, arrays, sharing):
    measure = {"warmup": "50ms", "requests": 40, "repetitions": 1, "workers": 2}
    target, load = {"model": "simple", "url": sharing.urls["http"]}, {"closed": {"concurrency": 2}}
    path = write_scenario(target=target, shared_memory="system", load=load, measure=measure, telemetry=False, **arrays)
    finished = perfkit.run("run", path)
    point = finished.result["points"][-1]
    assert point["checked"] == point["requests"]["ok"] > 0


def test_only_its_own_regions_are_unregistered_however_the_run_ends(perfkit, write_scenario, arrays, sharing):
    client = tritonclient.http.InferenceServerClient(sharing.authority)
    name = f"perfkit-of-another-client-{os.getpid()}"
    handle = shared_memory.create_shared_memory_region("other", f"/{name}", 64)
    try:
        client.register_system_shared_memory("other", f"/{name}", 64)
        arrays |= {"target": {"model": "simple", "urls": sharing.urls}, "telemetry": False}
        perfkit.measure(write_scenario(shared_memory="system", **arrays))
        assert regions(sharing) == {"other"}

        long = {"warmup": "0s", "duration": "60s", "repetitions": 1}
        path = write_scenario(shared_memory="system", measure=long, **arrays)

        def end_by(number):
            """Ends a run that has regions with a signal, and returns its process ID."""
            running = perfkit.start("run", path)
            running.wait_for_line("target: grpc")  # the second of the two
            assert len(objects_of(running.process.pid)) == 4
            assert len(regions(sharing)) == 5
            running.signal(number)
            assert running.finish().code == (130 if number is signal.SIGINT else -number)
            return running.process.pid

        assert objects_of(end_by(signal.SIGINT)) == []
        assert regions(sharing) == {"other"}
        for _ in range(5):  # every run on this machine removes what killed ones leave, so that another test's may come first
            killed = end_by(signal.SIGKILL)
            after = perfkit.run("run", write_scenario(target={"model": "simple", "url": sharing.urls["grpc"]}, telemetry=False))
            assert objects_of(killed) == []
            if "4 shared memory regions of a perfkit that was killed are removed: " in after.stderr:
                break
            for left in regions(sharing) - {"other"}:
                client.unregister_system_shared_memory(left)
        else:
            pytest.fail(f"no run says that it removed them: {after.stderr}")
        assert regions(sharing) == {"other"}
        assert (
            "shared memory"
            not in perfkit.run("run", write_scenario(target={"model": "simple", "url": sharing.urls["grpc"]}, telemetry=False)).stderr
        )
    finally:
        client.unregister_system_shared_memory("other")
        client.close()
        shared_memory.destroy_shared_memory_region(handle)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_server_that_does_not_allow_it_gets_one_line(perfkit, write_scenario, server, protocol):
    path = write_scenario(target={"model": "simple", "url": getattr(server, protocol)}, shared_memory="system", telemetry=False)
    finished = perfkit.run("run", path)
    assert finished.code == 2
    (line,) = (line for line in finished.stderr.splitlines() if line.startswith("perfkit: "))
    assert "the server does not let clients register shared memory" in line
    assert "--allow-client-shm" in line
    assert objects_of(os.getpid()) == []


def test_a_server_that_cannot_open_the_region_is_quoted(perfkit, write_scenario, sharing, monkeypatch):
    monkeypatch.setattr("perfkit.protocol.message.SharedRegion.key", "/no such object")
    finished = perfkit.run("run", write_scenario(target={"model": "simple", "url": sharing.urls["http"]}, shared_memory="system"))
    assert finished.code == 2
    assert "the server cannot open the region (HTTP 500: Unable to open shared memory region" in finished.stderr
    assert "--ipc=host" in finished.stderr


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"target": {"model": "m", "url": "http://10.1.2.3:8000"}}, "needs a server on this machine, such as http://127.0.0.1:8000"),
        ({"workload": {"encoding": "json"}}, "inputs in shared memory have no encoding"),
        ({"workload": {"outputs": [{"name": "y", "classes": 2}]}}, "outputs in shared memory are whole tensors"),
        ({"shared_memory": {"kind": "system", "inputs": False, "outputs": False}}, "neither inputs nor outputs are in shared memory"),
        ({"shared_memory": "sytem"}, "expected 'system' or 'cuda', found 'sytem'"),
    ],
)
def test_what_cannot_be_shared_is_found_without_a_server(perfkit, write_scenario, sections, message):
    finished = perfkit.run("validate", write_scenario(**{"shared_memory": "system", **sections}))
    assert finished.code == 2
    assert message in finished.stderr


def test_the_report_says_what_was_in_shared_memory(perfkit, write_scenario):
    shared = {"kind": "system", "inputs": False}
    finished = perfkit.run("run", write_scenario(shared_memory=shared, telemetry=False))
    assert perfkit.run("report", finished.folder).code == 0
    assert "With outputs in system shared memory." in (finished.folder / "report.md").read_text()
    assert "outputs in system shared memory" in (finished.folder / "report.html").read_text()


def test_none_is_no_shared_memory_and_is_not_stored(perfkit, write_quick_scenario):
    for none in ("none", {"kind": "none", "outputs": False}):
        assert "shared_memory" not in perfkit.measure(write_quick_scenario(shared_memory=none)).result["scenario"]
