"""Signals that end a run, and children that are stopped (SIGSTOP) while it goes on."""

import os
import pathlib
import pty
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tests.conditions import until_ended

ROOT = pathlib.Path(__file__).parents[2]
ENDS_WITHIN_S = 5
"""The promise is one second; the rest is for a machine that is busy with other tests."""
# a command whose event loop blocks, and whose child is stopped
BLOCKED = """
import asyncio, os, signal, sys, threading, time, uvloop
from perfkit.cli.signals import SignalHandler
from perfkit.measurement.control import Interruption
from perfkit.process.start_module import start_module

def say_first(handler):
    while not handler.count:
        time.sleep(0.001)
    print("taken", flush=True)

async def main():
    handler = SignalHandler(Interruption())
    with handler.installed():
        async with start_module("tests.process.child_module") as child:
            await child.read_line(60)
            os.kill(child.pid, signal.SIGSTOP)
            print(child.pid, flush=True)
            threading.Thread(target=say_first, args=(handler,), daemon=True).start()
            time.sleep(600)

uvloop.run(main())
"""


def seconds_to_end(process):
    begun_s = time.monotonic()
    process.wait(60)
    return time.monotonic() - begun_s


def interrupt_twice(running):
    """Seconds from the second Ctrl-C to the end."""
    running.signal(signal.SIGINT)
    running.wait_for_line("interrupt again to stop at once")
    running.signal(signal.SIGINT)
    return seconds_to_end(running.process)


def test_the_second_interrupt_ends_a_command_whose_event_loop_blocks_and_its_stopped_child():
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", BLOCKED], stdout=subprocess.PIPE, env=environment) as command:
        assert command.stdout is not None
        child = psutil.Process(int(command.stdout.readline()))
        command.send_signal(signal.SIGTERM)
        assert command.stdout.readline() == b"taken\n"  # of two that come together, either may be taken first
        assert command.poll() is None
        command.send_signal(signal.SIGINT)
        assert seconds_to_end(command) < ENDS_WITHIN_S
    assert command.returncode == 128 + signal.SIGTERM, "the exit code is that of the first signal"
    until_ended([child])


@pytest.mark.parametrize("name", ["perfkit.telemetry.sampler_process", "server_stub", "perfkit.workers.worker_process"])
def test_the_second_interrupt_ends_a_run_within_a_second_whichever_child_is_stopped(perfkit, write_scenario, name):
    measure = {"warmup": "0s", "duration": "300ms", "repetitions": 500, "workers": 2 if "worker" in name else 1}
    running = perfkit.start("run", write_scenario(load={"closed": {"concurrency": 2, "think_time": "5ms"}}, measure=measure))
    running.wait_for_line("[2/500]")  # the first load point is stored by then
    children = running.descendants()
    stopped = running.child(name)
    stopped.suspend()
    assert interrupt_twice(running) < ENDS_WITHIN_S
    finished = running.finish()
    assert finished.code == 130
    until_ended([stopped, *children])
    kept = [folder for folder in (finished.folder, finished.folder.with_name("out.partial")) if (folder / "result.json").exists()]
    assert len(kept) == 1, "what was measured before is stored"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_the_signals_that_end_a_process_keep_what_was_measured(perfkit, write_quick_scenario, number, code):
    running = perfkit.start("run", write_quick_scenario(measure={"warmup": "0s", "duration": "300ms", "repetitions": 500}))
    running.wait_for_line("[1/1000]")
    running.signal(number)
    finished = running.finish()
    assert finished.code == code
    assert finished.result["status"] == "interrupted"


def test_a_run_whose_terminal_is_closed_keeps_what_was_measured(write_quick_scenario, tmp_path):
    scenario = write_quick_scenario(measure={"warmup": "0s", "duration": "300ms", "repetitions": 500})
    ours, terminal = pty.openpty()
    command = [sys.executable, "-m", "perfkit", "run", str(scenario), "--out", str(tmp_path / "out"), "--no-report"]
    with subprocess.Popen(["/bin/sh", "-c", 'exec <"$0" >"$0" 2>&1 "$@"', os.ttyname(terminal), *command], start_new_session=True) as run:
        try:
            said = b""
            while b"[1/1000] http" not in said or b"p50" not in said:
                said += os.read(ours, 65536)
            os.close(terminal)  # not before: without a process that has the terminal open, reading fails
            os.close(ours)
            assert run.wait(60) == 129
        finally:
            run.kill()
    assert '"status": "interrupted"' in (tmp_path / "out" / "result.json").read_text()


def test_an_interrupt_while_the_report_is_drawn_keeps_the_result_and_prints_its_table(perfkit, write_quick_scenario):
    running = perfkit.start("run", write_quick_scenario(measure={"warmup": "0s", "requests": 20, "repetitions": 1}), report=True)
    running.wait_for_line("[1/2]")  # the process that draws is there before the load begins, which waits for it
    drawing = running.child("perfkit.cli.drawing_process")
    drawing.suspend()
    running.wait_for_line("shared_cpus")  # of the figures, which do not wait for the report
    running.signal(signal.SIGINT)
    finished = running.finish()
    assert finished.code == 130
    assert "concurrency" in finished.stdout
    assert [warning["code"] for warning in finished.result["warnings"]] == ["report_missing"]
    assert finished.stderr.splitlines()[-2].startswith("perfkit: the report was not drawn: it was interrupted; `perfkit report ")
    until_ended([drawing])


def test_a_report_that_cannot_be_drawn_is_a_warning_and_the_exit_code_stays(perfkit, write_quick_scenario, tmp_path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "jinja2.py").write_text("raise SystemExit('no jinja2')")
    scenario = write_quick_scenario(measure={"warmup": "0s", "requests": 20, "repetitions": 1})
    finished = perfkit.measure(scenario, report=True, environ={"PYTHONPATH": str(tmp_path / "broken")})
    (warning,) = finished.result["warnings"]
    assert warning["code"] == "report_missing"
    assert "ended with exit code 1: no jinja2; `perfkit report " in warning["message"]
    assert finished.stderr.splitlines()[-2].startswith("perfkit: the report was not drawn: ")
