"""A token that a file gives and that changes while load is sent: the worker processes send the new one, and the result has neither."""

import asyncio
import contextlib
import itertools
import shlex
import threading
from types import SimpleNamespace
from typing import Any, ClassVar

import psutil

from perfkit.clock import MonotonicClock
from perfkit.errors import ScenarioError
from perfkit.measurement import lifecycle
from perfkit.measurement.control import Interruption, RunObserver
from perfkit.measurement.lifecycle import measure_scenario
from perfkit.measurement.run_target import RunTarget, open_target
from perfkit.measurement.secret_renewal import SecretRenewal
from perfkit.scenario import secret_values
from perfkit.scenario.file import read_scenario
from perfkit.target.address import Address
from tests.conditions import until, until_ended
from tests.json_server import serving, v2_handler

SCENARIO = """\
target: {url: "http://127.0.0.1:PORT", model: m, headers: {authorization: "Bearer ${TOKEN}"}, secrets: {TOKEN: {file: token, every: 10ms}}}
load: {closed: {concurrency: 2}}
measure: {warmup: 0s, duration: 60s, repetitions: 1, workers: 2}
"""


class ToldRenewal(SecretRenewal):
    """Notes whose workers are told of changes, and when they no longer are."""

    told: ClassVar[list[Any]] = []

    @contextlib.contextmanager
    def telling(self, workloads):
        self.told.append(workloads)
        with super().telling(workloads) as set_loop:
            yield set_loop
        self.told.append("ended")


def test_worker_processes_send_a_token_that_changes_and_the_result_has_none(tmp_path, monkeypatch):
    monkeypatch.setattr(lifecycle, "SecretRenewal", ToldRenewal)
    interruption, seen, lock = Interruption(), list[str](), threading.Lock()
    (tmp_path / "token").write_text("planted-0\n")

    async def main():
        loop = asyncio.get_running_loop()

        class Handler(v2_handler(lambda _: None)):  # type: ignore[misc]  # made for this test
            def do_POST(self):
                with lock:
                    if (token := self.headers["authorization"]) not in seen:
                        seen.append(token)
                        if len(seen) == 4:
                            loop.call_soon_threadsafe(interruption.interrupt)
                        else:
                            (tmp_path / "next").write_text(f"planted-{len(seen)}\n")
                            (tmp_path / "next").replace(tmp_path / "token")
                super().do_POST()

        with serving(Handler) as port:
            (tmp_path / "s.yaml").write_text(SCENARIO.replace("PORT", str(port)))
            loaded = read_scenario(tmp_path / "s.yaml", environ={})
            return (await measure_scenario(loaded, tmp_path / "out", RunObserver(), interruption)).result

    result = asyncio.run(main())
    assert ToldRenewal.told == [[(None, "http")], "ended"]
    assert seen == [f"Bearer planted-{number}" for number in range(4)]
    (point,) = result.points
    assert point.requests.outcomes["rejected"] == 0
    assert not [file for file in (tmp_path / "out").rglob("*") if file.is_file() and b"planted" in file.read_bytes()]


class Group:
    """Notes the headers that workers are told."""

    def __init__(self):
        self.renewed = list[list[str]]()

    def renew(self, addresses):
        self.renewed.append([address.headers["a"] for address in addresses])

    def stop(self, *_, **__):
        pass


def test_a_secret_that_cannot_be_read_keeps_its_value_and_is_told_of_once(tmp_path):
    """Read again and again: the same value, a new one, two equal failures, another new one with a failure of another secret."""
    group, notes, has_ended = Group(), list[str](), threading.Event()
    (tmp_path / "s.yaml").write_text(SCENARIO.replace("PORT", "1"))
    loaded = read_scenario(tmp_path / "s.yaml", environ={})
    answers = iter(["old", "new", "", "", "newest", "newest"])

    def addresses(value):
        return {(None, "http"): Address("http", "h", 1, headers={"a": value})}

    def resolve(rereading):
        value = next(answers, None)
        if value is None:
            has_ended.set()
            return addresses("newest")
        if value == "newest":
            rereading.failures[loaded.scenario.target.secrets["TOKEN"], tmp_path] = "target.secrets.OTHER: gone"
        if value:
            return addresses(value)
        raise ScenarioError("target.secrets.TOKEN: gone")

    async def main():
        run: Any = SimpleNamespace(plain={None: loaded}, workloads={})
        renewal = SecretRenewal([run], RunTarget(addresses("old"), None, resolve), MonotonicClock(), notes.append)
        with renewal.follow():
            with renewal.telling([(None, "http")]) as set_loop:
                set_loop(group)
                assert await asyncio.to_thread(has_ended.wait, 30)
            with renewal.telling([(None, "http")]) as set_loop:
                set_loop(later := Group())  # of the next load point, whose requests may be older
            return later.renewed

    assert asyncio.run(main()) == [["newest"]]
    assert group.renewed == [["new"], ["newest"]]
    assert notes == [f"target.secrets.{name}: gone; the value from before is used" for name in ("TOKEN", "OTHER")]


def test_the_end_of_the_run_ends_a_command_and_what_it_started(tmp_path, monkeypatch):
    """The command ends at once when it is first run; the second time it starts a child process, writes its id to a file, and waits for it."""
    monkeypatch.setattr(secret_values, "_WITHIN_S", 3600)
    (tmp_path / "command.sh").write_text("echo value; [ -e first ] || exec touch first; sleep 3600 & echo $! > made; mv made child; wait")
    command = f"sh {shlex.quote(str(tmp_path / 'command.sh'))}"
    (tmp_path / "s.yaml").write_text(SCENARIO.replace("PORT", "1").replace("file: token", f"command: {command}"))
    loaded = read_scenario(tmp_path / "s.yaml", environ={})

    async def main():
        async with open_target(loaded, (), print, tmp_path / "log") as target:
            run: Any = SimpleNamespace(plain={None: loaded}, workloads={})
            with SecretRenewal([run], target, MonotonicClock(), print).follow():
                await until((tmp_path / "child").exists)
                child = psutil.Process(int((tmp_path / "child").read_text()))
            try:
                until_ended([child])
            finally:  # or the event loop would wait for the command
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()

    asyncio.run(main())


def test_workers_that_have_ended_are_told_of_no_change(tmp_path):
    """After a load point its worker processes may already be preparing the next one, which may have other workloads."""
    group, has_ended = Group(), threading.Event()
    (tmp_path / "s.yaml").write_text(SCENARIO.replace("PORT", "1"))
    loaded = read_scenario(tmp_path / "s.yaml", environ={})
    readings = itertools.count()

    def resolve(_):
        if (number := next(readings)) == 3:
            has_ended.set()
        return {(None, "http"): Address("http", "h", 1, headers={"a": str(number)})}

    async def main():
        run: Any = SimpleNamespace(plain={None: loaded}, workloads={})
        renewal = SecretRenewal([run], RunTarget(resolve(None), None, resolve), MonotonicClock(), print)
        with renewal.telling([(None, "http")]) as set_loop:
            set_loop(group)
        with renewal.follow():
            await asyncio.to_thread(has_ended.wait)

    asyncio.run(main())
    assert group.renewed == []
