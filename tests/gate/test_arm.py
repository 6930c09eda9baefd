import asyncio
import os
import shutil

import pytest

from perfkit.clock import MonotonicClock
from perfkit.errors import UsageError
from perfkit.gate.arm import Arm, GateContext, parse_arm, running_target
from perfkit.measurement.control import Interruption
from perfkit.scenario.file import LoadedScenario
from perfkit.scenario.model import Scenario


def scenario(**target):
    return Scenario.model_validate({"name": "x", "target": {"model": "m", **target}, "load": {"closed": {"concurrency": 1}}})


@pytest.mark.parametrize(
    ("text", "target", "arm", "shown"),
    [
        ("http://10.0.0.1:8000", {}, Arm(url="http://10.0.0.1:8000"), "http://10.0.0.1:8000"),
        ("grpc://user:secret@host", {}, Arm(url="grpc://user:secret@host"), "grpc://<redacted>@host"),
        ("cmd:serve --port {port}", {}, Arm(command="serve --port {port}"), "cmd:serve --port {port}"),
        ("cmd:serve {http_port} {grpc_port}", {}, Arm(command="serve {http_port} {grpc_port}"), "cmd:serve {http_port} {grpc_port}"),
        ("cmd:serve", {"url": "http://127.0.0.1:9000"}, Arm(command="serve"), "cmd:serve"),
        ("cmd:new {port}", {"command": "old {port}"}, Arm(command="new {port}"), "cmd:new {port}"),
    ],
)
def test_a_target_is_a_url_or_a_command(text, target, arm, shown):
    assert parse_arm("--baseline", text, scenario(**target)) == arm
    assert str(arm) == shown


@pytest.mark.parametrize(
    ("text", "target", "sentence"),
    [
        ("ftp://host", {}, "--baseline: expected .*ftp://host.*; or cmd: followed by a command"),
        ("cmd:", {}, "--baseline cmd:: expected a program and its arguments"),
        ("cmd:serve 'x", {}, "--baseline cmd:serve 'x: No closing quotation"),
        ("cmd:serve", {}, "the server's address is unknown: write {port} in the command where the server takes its port"),
        ("cmd:serve {http_port}", {"protocols": ["grpc"]}, "write {grpc_port} in the command"),
        ("cmd:serve {port}", {"protocols": ["http", "grpc"]}, "target.protocols: a gate uses one protocol; name one of them"),
        ("cmd:serve", {"urls": {"http": "http://h", "grpc": "grpc://h"}}, "target.urls: a gate uses one protocol; name one of them"),
    ],
)
def test_other_targets_are_refused_with_the_fix(text, target, sentence):
    with pytest.raises(UsageError, match=sentence):
        parse_arm("--baseline", text, scenario(**target))


def test_a_new_build_shows_in_the_files_that_the_command_names(tmp_path):
    program, script, log = (tmp_path / name for name in ("server", "serve.py", "server.log"))
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    script.write_text("")
    log.write_text("a server may write it")
    arm = Arm(command=f"{program} {script} --log {log} --port {{port}} no-file")
    before = arm.files
    assert list(before) == [str(program), str(script)]
    assert arm.files == before
    os.utime(program, ns=(1, 1))
    assert {file for file in before if before[file] != arm.files[file]} == {str(program)}
    assert list(Arm(command="sh -c true").files) == [shutil.which("sh")]
    assert Arm(url="http://127.0.0.1:8000").files == {}


def test_a_server_is_not_waited_for_that_the_scenario_cannot_reach(tmp_path):
    (tmp_path / "ca.pem").write_text("no certificate")
    loaded = LoadedScenario(scenario(url="https://127.0.0.1:9", tls={"ca": "ca.pem"}), tmp_path, ())
    context = GateContext(loaded, Interruption(), MonotonicClock(), tmp_path / "runs")

    async def main():
        async with asyncio.timeout(10), running_target(Arm(command="sleep 600"), context):
            pytest.fail("it was ready")

    with pytest.raises(UsageError, match="holds no certificates in PEM form"):
        asyncio.run(main())
