"""Signals that end a run, and children that are stopped (SIGSTOP) while it goes on."""

import json
import os
import pty
import signal
import subprocess
import sys
import time

import pytest

from tests.conditions import until_ended

ENDS_WITHIN_S = 5
"""The promise is one second; the rest is for a machine that is busy with other tests."""
BLOCKED = """
import sys, time
from perfkit.cli.main import main
from perfkit.cli.signals import SignalHandler
from perfkit.report.live import LiveReport

finished, count = [], SignalHandler._count

def count_aloud(handler, number):
    count(handler, number)
    print(f"signal {handler.count}", file=sys.stderr, flush=True)

def block_at_the_second(live, point):
    finished.append(point)
    if len(finished) == 2:
        print("blocked", file=sys.stderr, flush=True)
        time.sleep(600)

SignalHandler._count, LiveReport.point_finished = count_aloud, block_at_the_second
sys.exit(main(sys.argv[1:]))
"""
"""`perfkit` whose event loop blocks once the second load point is measured."""


def seconds_to_end(process):
    begun_s = time.monotonic()
    process.wait(60)
    return time.monotonic() - begun_s


def start_long(perfkit, write_scenario, *, workers=1, **how):
    """A run of 500 load points."""
    measure = {"warmup": "0s", "duration": "300ms", "repetitions": 500, "workers": workers}
    return perfkit.start("run", write_scenario(load={"closed": {"concurrency": 2, "think_time": "5ms"}}, measure=measure), **how)


def end_of(running, code):
    """Checks how a run ended that a second signal ended: nothing of it goes on, and the load points measured before are stored."""
    finished = running.finish()
    assert finished.code == code
    kept = [folder for folder in (finished.folder, finished.folder.with_name("out.partial")) if (folder / "result.json").exists()]
    assert len(kept) == 1
    assert json.loads((kept[0] / "result.json").read_text())["points"]


def test_the_second_interrupt_ends_a_run_whose_event_loop_blocks_and_a_stopped_child_and_keeps_what_was_measured(perfkit, write_scenario):
    running = start_long(perfkit, write_scenario, workers=2, program=BLOCKED)
    running.wait_for_line("blocked")  # the first load point is stored by then
    children = running.descendants()
    running.child("perfkit.workers.worker_process").suspend()
    running.signal(signal.SIGTERM)
    running.wait_for_line("signal 1")  # of two that come together, either may be taken first
    assert running.process.poll() is None
    running.signal(signal.SIGINT)
    assert seconds_to_end(running.process) < ENDS_WITHIN_S
    end_of(running, 128 + signal.SIGTERM)  # the exit code is that of the first signal
    until_ended(children)


@pytest.mark.parametrize(
    "name", ["perfkit.telemetry.sampler_process", "server_stub", "perfkit.workers.worker_process", "perfkit.cli.drawing_process"]
)
def test_the_second_interrupt_ends_a_run_whichever_child_is_stopped_and_keeps_what_was_measured(perfkit, write_scenario, name):
    running = start_long(perfkit, write_scenario, workers=2 if "worker" in name else 1, report="drawing" in name)
    running.wait_for_line("[2/500]")  # the first load point is stored by then
    children = running.descendants()
    running.child(name).suspend()
    running.signal(signal.SIGINT)
    running.wait_for_line("interrupt again to stop at once")
    running.signal(signal.SIGINT)
    assert seconds_to_end(running.process) < ENDS_WITHIN_S
    end_of(running, 130)
    until_ended(children)


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
