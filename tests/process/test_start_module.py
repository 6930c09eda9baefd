"""How perfkit starts its own modules: the code that they run, their environment, and their end."""

import asyncio
import json
import os
import pathlib
import subprocess
import sys

import psutil
import pytest

from perfkit.process.start_module import end_started_ahead, module_environment, run_module, start_ahead, start_module, wait_until_idle
from tests.children import children_running
from tests.conditions import until_ended

MODULE = "tests.process.child_module"


def test_a_child_gets_what_it_needs_of_the_environment_and_nothing_secret():
    needed = {
        "PATH": "/bin", "HOME": "/root", "LC_ALL": "C", "TMPDIR": "/t", "LD_LIBRARY_PATH": "/l", "CUDA_VISIBLE_DEVICES": "0",
        "NVIDIA_VISIBLE_DEVICES": "all", "OMP_NUM_THREADS": "2", "MALLOC_ARENA_MAX": "1", "PERFKIT_CACHE_DIR": "/c", "GRPC_VERBOSITY": "ERROR",
        "SSL_CERT_FILE": "/ca", "XDG_CACHE_HOME": "/x", "MPLCONFIGDIR": "/m", "CONDA_PREFIX": "/p",
        "NIX_LD": "/ld.so", "OPENSSL_CONF": "/o",
    }  # fmt: skip
    refused = {
        "AWS_SECRET_ACCESS_KEY": "s", "AWS_PROFILE": "p", "GITHUB_TOKEN": "s", "PERFKIT_API_TOKEN": "s", "PERFKIT_SET_TARGET__HEADERS": "s",
        "HTTPS_PROXY": "http://user:s@proxy", "http_proxy": "http://proxy", "PGPASSWORD": "s", "PYTHONSTARTUP": "/x.py", "BASH_ENV": "/x",
    }  # fmt: skip
    assert module_environment({**needed, **refused}) == needed


def test_an_empty_entry_of_the_module_path_which_means_the_current_folder_is_left_out():
    assert module_environment({"PYTHONPATH": ":/a::/b:"}) == {"PYTHONPATH": "/a:/b"}
    assert module_environment({"PYTHONPATH": ":"}) == {"PYTHONPATH": ""}


def ask_child(monkeypatch, tmp_path):
    """What a child says about itself, which was started in a folder whose files have the names of libraries."""
    for name in ("json", "numpy", "asyncio", "ctypes"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('code of the current folder was run')")
    (tmp_path / "perfkit").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLANTED_TOKEN", "secret")
    monkeypatch.setenv("PYTHONPATH", str(pathlib.Path(__file__).parents[2]))  # for the test's own module

    async def ask():
        async with start_module(MODULE, "one", "two") as child:
            return json.loads(await child.read_line(60))

    return asyncio.run(ask())


def test_a_child_runs_the_code_of_this_perfkit_and_none_of_the_current_folder(monkeypatch, tmp_path):
    import perfkit

    said = ask_child(monkeypatch, tmp_path)
    assert said["perfkit"] == perfkit.__file__
    assert said["arguments"] == ["one", "two"]
    assert said["name"] == "__main__"
    assert not {"", ".", str(tmp_path)} & set(said["path"])
    assert "PLANTED_TOKEN" not in said["environment"]


def test_a_stopped_child_ends_when_the_process_that_started_it_is_killed():
    starter = (
        "import asyncio, os, signal\nfrom perfkit.process.start_module import start_module\n"
        f"async def go():\n    async with start_module({MODULE!r}) as child:\n        await child.read_line(60)\n"
        "        os.kill(child.pid, signal.SIGSTOP)\n        print(child.pid, flush=True)\n        await asyncio.sleep(600)\n"
        "asyncio.run(go())"
    )
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[2])}
    with subprocess.Popen([sys.executable, "-c", starter], stdout=subprocess.PIPE, env=environment) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    until_ended([child])


@pytest.mark.parametrize(("argument", "within_s", "done"), [("end", 60, True), ("fail", 60, False), ("hang", 0.3, False)])
def test_a_module_that_is_run_to_its_end_is_killed_if_it_takes_too_long(monkeypatch, argument, within_s, done):
    monkeypatch.setenv("PYTHONPATH", str(pathlib.Path(__file__).parents[2]))
    assert run_module(MODULE, argument, within_s=within_s) is done
    assert children_running(MODULE) == []


def test_a_process_that_was_started_ahead_is_waited_for_until_it_has_written_and_then_used(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(pathlib.Path(__file__).parents[2]))

    async def go():
        start_ahead(MODULE)
        await wait_until_idle(MODULE, within_s=60)
        (waiting,) = children_running(MODULE)
        async with start_module(MODULE) as child:
            assert child.pid == waiting.pid
            assert json.loads(await child.read_line(60))["name"] == "__main__", "what it has written is still to be read"

    asyncio.run(go())
    assert children_running(MODULE) == []


def test_a_process_that_was_started_ahead_and_killed_while_it_waited_is_replaced(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(pathlib.Path(__file__).parents[2]))

    async def go():
        start_ahead(MODULE)
        await wait_until_idle(MODULE, within_s=60)
        (waiting,) = children_running(MODULE)
        waiting.kill()
        until_ended([waiting])
        async with start_module(MODULE) as child:
            assert json.loads(await child.read_line(60))["name"] == "__main__"
            assert child.pid != waiting.pid
        return waiting.pid

    pid = asyncio.run(go())
    assert not psutil.pid_exists(pid), "it was reaped"


def test_a_process_that_was_started_ahead_and_writes_nothing_is_ended_and_one_that_has_ended_is_not_waited_for(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(pathlib.Path(__file__).parents[2]))
    silent, ends = "tests.process.silent_module", "tests.process.no_such_module"

    async def go():
        await wait_until_idle(silent, within_s=60)  # none was started
        start_ahead(silent)
        await wait_until_idle(silent, within_s=0.01)
        assert children_running(silent) == []
        start_ahead(silent)
        assert children_running(silent) == [], "the next one would not be idle in time, either"
        start_ahead(ends, reads_stderr=True)
        await wait_until_idle(ends, within_s=3600)
        end_started_ahead(ends)

    asyncio.run(go())
