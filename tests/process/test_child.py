"""The supervisor of child processes, with small Python programs as children."""

import asyncio
import contextlib
import re
import select
import signal
import subprocess
import sys

import psutil
import pytest
import uvloop

from perfkit.process import child as child_module
from perfkit.process.child import NotReadyError, child_process, end_unused, kill_all, spawn
from perfkit.process.messages import claim_stdout, load_message, message_bytes
from tests.children import children_running
from tests.conditions import passes, until_ended, wait_until

ECHO = "from tests.process.test_child import echo; echo()"
UNTIL_STDIN_ENDS = "import sys; print('ready', flush=True); sys.stdin.read(); print('goodbye', file=sys.stderr)"
DEAF_TO_STDIN = "import signal; print('ready', flush=True); signal.pause()"
DEAF_TO_SIGTERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True)\nwhile True: signal.pause()"
MARK = "child-under-test"


def echo():
    """A child that sends every message back, and writes something to stdout that is no message."""
    out = claim_stdout()
    sys.stdout.write("a library prints this\n")
    with contextlib.suppress(EOFError):
        while True:
            out.write(message_bytes(load_message(sys.stdin.buffer)))
            out.flush()


def python(source):
    return [sys.executable, "-c", source, MARK]


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request):
    yield request.param
    assert children_running(MARK) == []


async def run_to_its_end(source, **options):
    """Runs a child until it ends by itself, and says how it ended."""
    async with child_process(python(source), **options) as child:
        return await child.wait_for_end()


def test_messages_go_to_a_child_and_come_back(run):
    async def main():
        async with child_process(python(ECHO)) as child:
            sent = [{"a": 1}, b"x" * 3_000_000, None]
            for message in sent:
                child.send(message)
            return sent == [await child.receive() for _ in sent]

    assert run(main())


def test_a_message_is_whole_also_if_its_sender_is_suspended_while_it_writes():
    message = b"x" * 3_000_000
    with subprocess.Popen(python(ECHO), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(message_bytes(message))
        child.stdin.close()
        select.select([child.stdout], [], [])  # it has begun to write, and waits for us to read
        suspended = psutil.Process(child.pid)
        suspended.suspend()
        wait_until(lambda: suspended.status() == psutil.STATUS_STOPPED)
        suspended.resume()
        assert load_message(child.stdout) == message


@pytest.mark.parametrize(
    ("source", "options", "status"),
    [
        (UNTIL_STDIN_ENDS, {}, 0),
        (DEAF_TO_STDIN, {"stop_within_s": 0.05}, -signal.SIGTERM),
        (DEAF_TO_SIGTERM, {"stop_within_s": 0.05}, -signal.SIGKILL),
        (DEAF_TO_STDIN, {"ends_with_stdin": False, "stop_within_s": 600}, -signal.SIGTERM),  # at once
    ],
)
def test_a_child_is_ended_by_the_mildest_means_that_it_obeys(run, source, options, status):
    async def main():
        async with child_process(python(source), **options) as child:
            assert await child.read_line(60) == b"ready\n"
        return child.ended.result()

    assert run(main()) == status


def test_a_child_that_had_to_be_killed_is_named_with_the_time_that_it_had(run):
    lines: list[str] = []

    async def main():
        async with child_process(python(DEAF_TO_SIGTERM), on_line=lines.append, stop_within_s=0.05) as child:
            await child.read_line(60)
        return child.pid

    pid = run(main())
    assert lines == [f"process {pid} did not end within 1.05 s and was killed"]


def test_a_stopped_child_is_let_go_on_to_end_by_sigterm(run):
    async def main():
        async with child_process(python(DEAF_TO_STDIN), stop_within_s=0.05) as child:
            await child.read_line(60)
            psutil.Process(child.pid).suspend()
        return child.ended.result()

    assert run(main()) == -signal.SIGTERM


def test_all_children_can_be_killed_at_once_even_stopped_ones(run):
    async def main():
        async with child_process(python(DEAF_TO_SIGTERM)) as one, child_process(python(DEAF_TO_STDIN)) as other:
            await one.read_line(60)
            await other.read_line(60)
            psutil.Process(other.pid).suspend()
            kill_all()
            return [await child.ended for child in (one, other)]

    assert run(main()) == [-signal.SIGKILL] * 2


def test_a_child_that_fills_its_output_is_ended_all_the_same(run):
    async def main():
        async with child_process(python("import sys; sys.stdout.write('x' * 10**7); sys.stdin.read()")) as child:
            pass
        return child.ended.result()

    assert run(main()) == 0


def test_everything_that_a_child_started_ends_with_it(run):
    source = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()']).pid, flush=True)"

    async def main():
        async with child_process(python(source)) as child:
            grandchild = psutil.Process(int(await child.read_line(60)))
            await child.wait_for_end()
            return grandchild

    until_ended([run(main())])


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import sys; sys.exit(3)", "ended with exit code 3"),
        ("import sys; print('no GPU', file=sys.stderr); sys.exit(3)", "ended with exit code 3: no GPU"),
        ("import os; os.kill(os.getpid(), 9)", "ended with signal 9 (SIGKILL)"),
        ("import sys; sys.stdin.read()", "was not ready within 0.05 s"),
    ],
)
def test_a_child_that_ends_or_is_silent_before_it_is_ready_is_an_error_that_says_so(run, source, reason):
    async def main():
        async with child_process(python(source), on_line=lambda _: None) as child:
            await child.read_line(60 if "ended" in reason else 0.05)

    with pytest.raises(NotReadyError, match=f"^{re.escape(reason)}$"):
        run(main())


def test_waiting_for_a_child_that_has_closed_its_output_and_goes_on_is_bounded(run):
    async def main():
        async with child_process(python("import os, sys; os.close(1); sys.stdin.read()")) as child:
            with pytest.raises(EOFError):
                await child.receive()
            return await child.wait_for_end(0.05)

    assert run(main()) == "closed its output and did not end"


def test_what_a_child_writes_to_stderr_is_given_line_by_line(run):
    lines: list[str] = []
    source = "import sys; sys.stderr.write('one\\ntwo\\n\\n' + 'x' * 200_000 + '\\nunfinished')"
    run(run_to_its_end(source, on_line=lines.append))
    assert lines[:3] == ["one", "two", ""]
    assert "".join(lines[3:-1]) == "x" * 200_000
    assert lines[-1] == "unfinished"


def test_both_outputs_of_a_child_can_go_to_a_file(run, tmp_path):
    with (tmp_path / "log").open("wb") as log:
        run(run_to_its_end("import os; os.write(1, b'out '); os.write(2, b'err')", output=log))
    assert (tmp_path / "log").read_text() == "out err"


def test_a_child_runs_in_the_folder_that_is_given(run, tmp_path):
    lines: list[str] = []
    run(run_to_its_end("import os, sys; print(os.getcwd(), file=sys.stderr)", on_line=lines.append, folder=tmp_path))
    assert lines == [str(tmp_path.resolve())]


def test_a_command_that_does_not_exist_is_an_error(run):
    async def main():
        async with child_process(["/no/such/program"]):
            pytest.fail("it was started")

    with pytest.raises(FileNotFoundError):
        run(main())


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_a_cancellation_while_a_child_starts_leaves_no_process(run, turns):
    async def start():
        async with child_process(python("import sys; sys.stdin.read()")):
            pytest.fail("it was not cancelled")

    async def main():
        task = asyncio.ensure_future(start())
        await passes(turns)  # the process has been started, and its pipes are being connected, or are
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())


def test_a_cancellation_while_a_child_is_stopped_kills_it(run):
    async def main():
        ready = asyncio.Event()

        async def hold():
            async with child_process(python(DEAF_TO_SIGTERM), stop_within_s=600) as child:
                await child.read_line(60)
                ready.set()
            pytest.fail("it was not cancelled")

        task = asyncio.ensure_future(hold())
        await ready.wait()
        await passes(3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        until_ended(children_running(MARK))

    run(main())


def test_no_file_stays_open_when_a_child_has_ended(run):
    async def main():
        open_files = []
        for _ in range(3):
            async with child_process(python("import sys; sys.stdin.read()"), on_line=lambda _: None):
                pass
            open_files.append(psutil.Process().num_fds())
        return open_files

    open_files = run(main())
    assert open_files[-1] <= open_files[0]  # the event loop keeps some for itself from its first child on


def test_a_process_that_was_spawned_ahead_is_used_and_ended_like_another():
    async def go():
        spawned = spawn(python(ECHO), None, reads_stderr=False)
        async with child_process(python(ECHO), spawned=spawned) as child:
            assert child.pid == spawned.pid
            child.send("hello")
            return await child.receive()

    assert asyncio.run(go()) == "hello"
    assert children_running(MARK) == []


def test_a_process_that_was_spawned_ahead_and_is_not_used_is_ended():
    spawned = spawn(python(DEAF_TO_SIGTERM), None, reads_stderr=True)
    end_unused(spawned)
    assert spawned.returncode == -signal.SIGKILL
    assert children_running(MARK) == []


def test_a_process_that_the_system_does_not_end_is_not_waited_for_without_an_end(monkeypatch):
    spawned = spawn(python("import signal; signal.pause()"), None, reads_stderr=True)  # it would end if it wrote to the closed pipe
    with monkeypatch.context() as patch:
        patch.setattr(child_module, "kill_group", lambda _: None)
        patch.setattr(child_module, "_UNUSED_ENDS_WITHIN_S", 0.01)
        end_unused(spawned)
    assert spawned.poll() is None
    kill_all()
    assert spawned.wait() == -signal.SIGKILL, "it was still among the children"
    child_module.unregister(spawned)
