"""`perfkit fleet up` and `down`: on this machine, and over SSH to servers that asyncssh runs in a thread of the test."""

import asyncio
import contextlib
import importlib.metadata
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from typing import Any

import asyncssh
import psutil
import pytest

from perfkit.fleet.ssh_hosts import parse_hosts, probe_fault
from tests.conditions import until_ended

NAMES = ("one", "two")


@pytest.fixture
def fleet(tmp_path):
    """Runs `perfkit fleet` with a state folder of the test's own, and ends what is left."""

    def run(*words, state=tmp_path / "state"):
        environ = {**os.environ, "PERFKIT_STATE_DIR": str(state)}
        return subprocess.run(
            [sys.executable, "-m", "perfkit", "fleet", *map(str, words)],
            env=environ,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    yield run
    run("down")


def processes_of_fleet(tmp_path):
    (file,) = (tmp_path / "state").glob("fleet-*.json")
    process = psutil.Process(json.loads(file.read_text())["process"])
    return process, process.children(recursive=True)


def scheduler_of(finished):
    assert finished.returncode == 0, finished.stderr
    (url,) = re.findall(r"\Aperfkit run scenario\.yaml --fleet (tcp://\S+)(?: --machines \d+)?\nperfkit fleet down .*\n\Z", finished.stdout)
    return url


def test_a_fleet_is_up_carries_a_run_and_is_down_again(fleet, perfkit, write_quick_scenario, tmp_path):
    url = scheduler_of(up := fleet("up", "--local", 2, "--port", 0))
    assert f"--fleet {url} --machines 2\n" in up.stdout, "without it, a run takes one machine of this host"
    process, others = processes_of_fleet(tmp_path)
    assert len(others) >= 2
    scenario = write_quick_scenario(load={"open": {"rate": 200}}, measure={"warmup": "0s", "repetitions": 1, "requests": 100})
    finished = perfkit.start("run", scenario, "--fleet", url, "--machines", "2").finish()
    assert [one["requests"] for one in finished.result["points"][0]["machines"]] == [50, 50]
    second = fleet("up", "--local", 1)
    assert second.returncode == 2
    assert f"use it by `perfkit run scenario.yaml --fleet {url} --machines 2`, or end it first by `perfkit fleet down`" in second.stderr
    assert fleet("down").stderr == "perfkit fleet: the fleet is down\n"
    until_ended([process, *others])
    assert fleet("down").stderr == "perfkit fleet: no fleet is up on this machine\n"


def test_a_killed_fleet_leaves_no_process_and_is_said(fleet, tmp_path):
    scheduler_of(fleet("up", "--local", 1, "--port", 0))
    process, others = processes_of_fleet(tmp_path)
    process.send_signal(signal.SIGKILL)
    until_ended([process, *others])
    assert "had been killed" in fleet("down").stderr
    scheduler_of(fleet("up", "--local", 1, "--port", 0))


def test_a_state_folder_may_be_relative_to_the_current_folder(fleet, tmp_path):
    scheduler_of(fleet("up", "--local", 1, "--port", 0, state="state"))
    processes = processes_of_fleet(tmp_path)
    assert fleet("down", state="state").stderr == "perfkit fleet: the fleet is down\n"
    until_ended([processes[0], *processes[1]])


def test_a_port_in_use_is_named_with_the_option(fleet):
    listener = socket.create_server(("127.0.0.1", 0))
    with listener:
        finished = fleet("up", "--local", 1, "--port", listener.getsockname()[1])
    assert finished.returncode == 2
    assert "the scheduler cannot listen there (Address already in use): give another --port" in finished.stderr


@pytest.fixture
def ssh(tmp_path):
    """An SSH server that runs commands as this user; the configuration by which the hosts `one` and `two` are this server."""
    key, host_key = asyncssh.generate_private_key("ssh-ed25519"), asyncssh.generate_private_key("ssh-ed25519")
    key.write_private_key(tmp_path / "key")
    (tmp_path / "authorized").write_bytes(key.export_public_key())
    loop, ready = asyncio.new_event_loop(), threading.Event()
    serving: dict[str, Any] = {}
    tasks: set[Any] = set()

    async def copy(source, sink):
        with contextlib.suppress(OSError, asyncssh.Error):
            while data := await source.read(2**16):
                sink.write(data)
        with contextlib.suppress(OSError):
            sink.write_eof()

    async def serve(process):
        tasks.add(asyncio.current_task())
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_shell(process.command, stdin=pipe, stdout=pipe, stderr=pipe)
        feeding = asyncio.ensure_future(copy(process.stdin, child.stdin))
        await asyncio.gather(copy(child.stdout, process.stdout), copy(child.stderr, process.stderr))
        process.exit(await child.wait())
        feeding.cancel()

    async def main():
        serving["end"] = asyncio.Event()
        async with await asyncssh.listen(
            "127.0.0.1",
            0,
            server_host_keys=[host_key],
            authorized_client_keys=str(tmp_path / "authorized"),
            process_factory=serve,
            encoding=None,
        ) as server:
            serving["port"] = server.get_port()
            ready.set()
            await serving["end"].wait()
        await asyncio.gather(*tasks, return_exceptions=True)

    thread = threading.Thread(target=loop.run_until_complete, args=(main(),))
    thread.start()
    ready.wait()
    public = host_key.export_public_key().decode().strip()
    (tmp_path / "known").write_text(f"[127.0.0.1]:{serving['port']} {public}\n")
    hosts = "".join(f"Host {name}\n  HostName 127.0.0.1\n" for name in NAMES)
    common = f"Host *\n  Port {serving['port']}\n  IdentityFile {tmp_path / 'key'}\n  UserKnownHostsFile {tmp_path / 'known'}\n"
    (tmp_path / "config").write_text(hosts + common)
    yield tmp_path / "config"
    loop.call_soon_threadsafe(serving["end"].set)
    thread.join()
    loop.close()


def test_hosts_over_ssh_get_a_dask_worker_each_which_ends_with_the_fleet(fleet, ssh, tmp_path):
    url = scheduler_of(up := fleet("up", "--ssh", ",".join(NAMES), "--ssh-config", ssh, "--port", 0))
    assert "2 hosts have the same versions of perfkit and Dask as this machine" in up.stderr
    assert f"whoever reaches {url} can run programs on the hosts" in up.stderr
    process, _ = processes_of_fleet(tmp_path)
    workers = [one for one in psutil.Process().children(recursive=True) if "distributed.cli.dask_spec" in " ".join(_command(one))]
    assert len(workers) >= len(NAMES)
    process.send_signal(signal.SIGKILL)
    until_ended([process, *workers])


def _command(process):
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.cmdline()
    return []


def test_hosts_that_refuse_the_login_are_all_named_with_the_command_to_try(fleet, ssh, tmp_path):
    (tmp_path / "key").unlink()
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(tmp_path / "key")
    finished = fleet("up", "--ssh", ",".join(NAMES), "--ssh-config", ssh, "--port", 0)
    assert finished.returncode == 6
    assert [line.removeprefix("perfkit: ").split(":")[0] for line in finished.stderr.splitlines()] == list(NAMES)
    assert f"`ssh -F {ssh} one true` must work without a password" in finished.stderr


def test_what_a_host_lacks_is_said_with_the_mend():
    own = {name: importlib.metadata.version(name) for name in ("perfkit", "distributed")}
    assert probe_fault(0, json.dumps(own), "", "python3") == ""
    assert probe_fault(0, json.dumps({**own, "distributed": None}), "", "python3") == (
        f"python3 has other packages there than here (distributed is missing, here {own['distributed']}): "
        "install the same versions of perfkit[fleet], or give --remote-python"
    )
    assert "it said: python3: not found" in probe_fault(127, "", "sh: 1:\npython3: not found\n", "python3")


def test_hosts_are_names_with_or_without_a_user():
    assert parse_hosts("a, me@b") == (("a", None), ("b", "me"))


@pytest.mark.parametrize("text", ["", "a,,b", "@a", "a b", "a,b,a"])
def test_other_lists_of_hosts_are_refused(text):
    with pytest.raises(ValueError, match=r"expected hosts|is there twice"):
        parse_hosts(text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--local", "1", "--address", "h"), "--address is for hosts that are reached over SSH"),
        (("--ssh", "a", "--address", "h", "--port", "0"), "with --address the port must be known beforehand"),
        (("--ssh", "a", "--ssh-config", "/nothing"), "--ssh-config /nothing: there is no such file"),
    ],
)
def test_options_that_do_not_fit_are_refused(perfkit, options, message):
    finished = perfkit.run("fleet", "up", *options)
    assert finished.code == 2
    assert message in finished.stderr
