import asyncio
import dataclasses
import os
import shlex
import shutil
import signal
import sys

import pytest

from perfkit.clock import MonotonicClock
from perfkit.errors import MeasurementError, ServerFailedError, TargetError, UsageError
from perfkit.gate.arm import Arm, GateContext, RunningTarget, RunSpec, _RunNotes, _with_spec, measure_loads, parse_arm, running_target
from perfkit.gate.pairs import Stage
from perfkit.load.loop import StopCause
from perfkit.measurement.control import Interruption
from perfkit.measurement.lifecycle import RunProcesses
from perfkit.scenario.file import LoadedScenario
from perfkit.scenario.model import Scenario
from perfkit.telemetry.messages import PublishConfig
from perfkit.units import NS_PER_S
from tests.json_server import serving, v2_handler
from tests.otlp_receiver import attributes_of, receiving
from tests.simulated_pairs import RecordingObserver

STAGE = Stage("baseline", "trial", "trial-baseline")
AWAY = "Live metrics could not be pushed to http://127.0.0.1:4318; it is tried again every 5 s."


def scenario(**target):
    return Scenario.model_validate({"name": "x", "target": {"model": "m", **target}, "load": {"closed": {"concurrency": 1}}})


def context_of(loaded):
    return GateContext(
        loaded, Interruption(), MonotonicClock(), loaded.folder / "runs", RecordingObserver(), RunProcesses(MonotonicClock())
    )


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


@pytest.mark.parametrize(("length_s", "with_load"), [(4, 3), (1, 0)])
def test_a_runs_warm_up_is_as_long_as_asked_for_also_with_a_load_of_its_own(tmp_path, length_s, with_load):
    document = {"name": "x", "target": {"model": "m"}, "load": {"closed": {"concurrency": 1}}}
    own = Scenario.model_validate({**document, "measure": {"warmup": {"for": "9s", "load": {"closed": {"concurrency": 8}}}}})
    spec = RunSpec(own.load, warmup_ns=length_s * NS_PER_S)
    made = _with_spec(LoadedScenario(own, tmp_path, ()), spec, RunningTarget("http://127.0.0.1:8000", ())).scenario
    assert (made.warmup_ns, made.warm_load_ns) == (length_s * NS_PER_S, with_load * NS_PER_S)


@pytest.mark.parametrize(
    ("text", "target", "sentence"),
    [
        ("ftp://host", {}, "--baseline: expected .*ftp://host.*; or cmd: followed by a command"),
        ("cmd:", {}, "--baseline cmd:: expected a program and its arguments"),
        (
            "cmd:FOO=1 serve {port}",
            {},
            'for a shell, and perfkit runs a command without a shell: write --baseline "cmd:env FOO=1 serve {port}"$',
        ),
        ("cmd:cd x && serve {port}", {}, """: write --baseline "cmd:sh -c 'cd x && exec serve {port}'"$"""),
        ("cmd:A=$B serve", {}, r"""write --baseline 'cmd:env A=\$B serve'$"""),
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


def test_a_command_runs_in_the_arms_folder_and_its_files_are_looked_for_there(tmp_path):
    (tmp_path / "serve.py").write_text("import os; print('it runs in', os.getcwd())")
    arm = Arm(command=f"{sys.executable} ./serve.py {{port}}", folder=tmp_path)
    assert str(arm) == f"cmd:{sys.executable} ./serve.py {{port}} in {tmp_path}"
    assert str(tmp_path / "serve.py") in arm.files
    context = context_of(LoadedScenario(scenario(), tmp_path, ()))

    async def main():
        async with running_target(arm, context, STAGE):
            pytest.fail("it was ready")

    with pytest.raises(TargetError, match=f"it said: it runs in {tmp_path}"):
        asyncio.run(main())


def test_a_server_is_not_waited_for_that_the_scenario_cannot_reach(tmp_path):
    (tmp_path / "ca.pem").write_text("no certificate")
    loaded = LoadedScenario(scenario(url="https://127.0.0.1:9", tls={"ca": "ca.pem"}), tmp_path, ())
    context = context_of(loaded)

    async def main():
        async with asyncio.timeout(10), running_target(Arm(command="sleep 600"), context, STAGE):
            pytest.fail("it was ready")

    with pytest.raises(UsageError, match="holds no certificates in PEM form"):
        asyncio.run(main())


def test_the_live_metrics_of_each_run_are_pushed_with_its_name(tmp_path):
    loaded = LoadedScenario(scenario(), tmp_path, ())
    spec = RunSpec(loaded.scenario.load, warmup_ns=0, window_ns=NS_PER_S // 5)

    async def measure(publish_at, url):
        async with RunProcesses(MonotonicClock()) as processes:
            context = dataclasses.replace(context_of(loaded), processes=processes, publish_at=publish_at)
            for name in ("000-baseline", "000-candidate"):
                await measure_loads([spec], RunningTarget(url, ()), context, name)
            return context.observer

    with receiving() as receiver, serving(v2_handler(lambda _: None)) as port:
        asyncio.run(measure(PublishConfig(otlp=receiver.url), f"http://127.0.0.1:{port}"))
    pushed = dict[str, set[str]]()
    for message in receiver.received:
        for resource in message.resource_metrics:
            names = pushed.setdefault(attributes_of(resource.resource)["perfkit.run"], set())
            names |= {metric.name for scope in resource.scope_metrics for metric in scope.metrics}
    assert pushed.keys() == {"000-baseline", "000-candidate"}
    assert all("perfkit_point_throughput_per_second" in names for names in pushed.values())


def test_that_metrics_are_not_pushed_is_told_once_and_no_other_note_of_the_runs(tmp_path):
    alone = context_of(LoadedScenario(scenario(), tmp_path, ()))
    pushing = dataclasses.replace(alone, observer=RecordingObserver(), publish_at=PublishConfig(otlp="http://127.0.0.1:4318"), said=set())
    for context in (alone, pushing):
        for note in (AWAY, AWAY, "other"):
            _RunNotes(context).note_added(note)
    assert (alone.observer.messages, pushing.observer.messages) == ([AWAY], [AWAY])


def commanded(tmp_path, shell="exec"):
    """An arm and context of a server that notes its process in a file, and that file."""
    pids = tmp_path / "pids"
    server = f"{shell} {shlex.join([sys.executable, '-m', 'tests.v2_process'])} {{port}} {shlex.quote(str(pids))}"
    return Arm(command=f"sh -c {shlex.quote(server)}"), context_of(LoadedScenario(scenario(), tmp_path, ())), pids


class StoppedLoop:
    """A load under way, until it is stopped."""

    def __init__(self):
        self.stopped = asyncio.get_running_loop().create_future()

    def stop(self, reason, cause, *, drain=True):
        self.stopped.set_result((reason, cause))


def test_a_server_that_ends_under_load_stops_it_and_is_named_with_its_signal_and_last_lines(tmp_path):
    arm, context, pids = commanded(tmp_path, "echo the model is loaded; exec")

    async def main():
        async with running_target(arm, context, STAGE):
            context.interruption.loop = loop = StoppedLoop()
            os.kill(int(pids.read_text()), signal.SIGKILL)
            assert await loop.stopped == ("the server ended with signal 9 (SIGKILL)", StopCause.TARGET_LOST)
            raise TargetError("the connection was refused")

    with pytest.raises(
        ServerFailedError, match=r"^the server ended with signal 9 \(SIGKILL\) while it was measured; it said: the model is"
    ) as caught:
        asyncio.run(main())
    assert (caught.value.status, caught.value.last_lines) == (-signal.SIGKILL, ("the model is loaded",))
    assert (tmp_path / "runs" / "trial-baseline.server.log").read_text() == "the model is loaded\n"


def test_a_server_that_ended_is_an_error_although_its_load_was_measured(tmp_path):
    arm, context, pids = commanded(tmp_path)

    async def main():
        async with running_target(arm, context, STAGE):
            context.interruption.loop = loop = StoppedLoop()
            os.kill(int(pids.read_text()), signal.SIGTERM)
            await loop.stopped

    with pytest.raises(ServerFailedError, match=r"ended with signal 15 \(SIGTERM\)"):
        asyncio.run(main())


def test_a_lost_server_that_still_runs_has_its_last_lines(tmp_path):
    arm, context, _ = commanded(tmp_path, "echo out of sockets; exec")

    async def main():
        async with running_target(arm, context, STAGE):
            raise TargetError("it does not answer")

    with pytest.raises(ServerFailedError, match=r"^it does not answer; it said: out of sockets$") as caught:
        asyncio.run(main())
    assert caught.value.status is None


@pytest.mark.parametrize("failure", [MeasurementError("the generator was late"), UsageError("no such model"), asyncio.CancelledError()])
def test_other_failures_of_a_run_stay_what_they_are(tmp_path, failure):
    arm, context, _ = commanded(tmp_path)

    async def main():
        async with running_target(arm, context, STAGE):
            raise failure

    with pytest.raises(type(failure)) as caught:
        asyncio.run(main())
    assert caught.value is failure


def test_each_run_has_a_log_of_its_own_of_which_the_end_is_kept(tmp_path):
    arm, context, _ = commanded(tmp_path, "yes chatter | head -c 200000; echo; echo the end; exec")
    log = tmp_path / "runs" / "003-candidate.server.log"
    log.parent.mkdir()
    log.write_text("of an earlier attempt")

    async def main():
        async with running_target(arm, context, Stage("candidate", "pair 4", "003-candidate")):
            assert log.stat().st_size > 200_000

    asyncio.run(main())
    assert log.stat().st_size == 2**16
    assert log.read_text().endswith("chatter\n\nthe end\n")


@pytest.mark.parametrize(
    ("target", "given_ns", "limit"), [({}, None, "1m"), ({"ready_within": "5m"}, None, "5m"), ({"ready_within": "5m"}, 7 * NS_PER_S, "7s")]
)
def test_a_server_has_the_given_time_to_be_ready_or_the_scenarios_or_a_minute(tmp_path, target, given_ns, limit):
    class ExpiredClock(MonotonicClock):
        """Jumps by ten minutes with every reading."""

        def now_ns(self):
            self.jumped_ns = getattr(self, "jumped_ns", 0) + 600 * NS_PER_S
            return super().now_ns() + self.jumped_ns

    context = context_of(LoadedScenario(scenario(**target), tmp_path, ()))
    context = dataclasses.replace(context, clock=ExpiredClock(), ready_within_ns=given_ns)

    async def main():
        async with running_target(Arm(command="sleep 600 {port}"), context, STAGE):
            pytest.fail("it was ready")

    with pytest.raises(ServerFailedError, match=rf"was not ready within {limit} \(--ready-timeout\)"):
        asyncio.run(main())
