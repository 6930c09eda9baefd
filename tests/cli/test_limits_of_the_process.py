"""A run with few files allowed, and one whose standard files are closed."""

import os
import subprocess
import sys

import psutil

from tests.json_server import JsonHandler, serving


def in_shell(script, *arguments):
    """Runs perfkit by a line of shell, `$@`."""
    command = ["/bin/sh", "-c", script, "sh", sys.executable, "-P", "-m", "perfkit", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env={**os.environ})


def test_a_file_limit_that_is_too_low_is_refused_before_any_load_with_the_arithmetic(write_scenario, tmp_path):
    asked = []

    class Handler(JsonHandler):
        def do_GET(self):
            asked.append(self.path)
            self.answer(404, {})

    with serving(Handler) as port:
        scenario = write_scenario(target={"model": "m", "url": f"http://127.0.0.1:{port}"}, load={"closed": {"concurrency": 64}})
        refused = in_shell('ulimit -n 24; exec "$@"', "run", scenario, "--out", tmp_path / "out", "--no-report")
    assert refused.returncode == 2, refused.stderr
    assert "perfkit: the file limit is too low: each worker needs " in refused.stderr
    assert "and the limit is 24: raise it" in refused.stderr
    assert asked == []
    assert not (tmp_path / "out").exists()


def test_a_file_limit_that_is_reached_under_load_is_the_generators_and_makes_the_point_invalid(perfkit, write_scenario, slow_server):
    sections = {
        **slow_server,
        "server": {"synthetic": "service=constant:100ms,servers=1"},
        "load": {"open": {"rate": 40, "arrivals": "constant"}},
    }
    sections["target"] = {"model": "synthetic"}
    scenario = write_scenario(**sections, measure={"warmup": "0s", "duration": "3s", "drain": "2s", "repetitions": 1})
    running = perfkit.start("run", scenario)
    running.wait_for_line("target:")
    worker = running.child("perfkit.workers.worker_process")
    limit = worker.num_fds() + 25  # the backlog of the overloaded server needs a connection more each 33 ms
    worker.rlimit(psutil.RLIMIT_NOFILE, (limit, limit))
    finished = running.finish()
    assert finished.code == 5, finished.stderr
    assert "cannot be reached" not in finished.stderr
    messages = [one["message"] for one in finished.result["points"][-1]["warnings"] if one["code"] == "file_limit"]
    # the sampler may have seen the limit nearly reached, which is a second warning
    assert sum("failed at the load generator's limit of open files" in message for message in messages) == 1
    assert not finished.result["points"][-1]["valid"]


def test_so_little_address_space_that_a_library_would_end_the_process_is_refused_in_a_sentence(write_scenario):
    scenario = write_scenario()
    for words in (["run", scenario], ["gate", scenario, "--baseline", "a", "--candidate", "b"]):
        refused = in_shell('ulimit -v 120000; exec "$@"', *words)  # in which OpenBLAS ends a process with exit code 1, that of a regression
        assert (refused.returncode, refused.stdout) == (2, "")
        (line,) = refused.stderr.splitlines()
        assert line.startswith("perfkit: this process may use 117 MiB of address space (ulimit -v), and ")
    assert in_shell('ulimit -v 120000; exec "$@"', "validate", scenario).returncode == 0


def test_a_run_in_which_every_warning_is_an_error_ends_as_any_other(perfkit, write_scenario):
    scenario = write_scenario(measure={"warmup": "0s", "requests": 20, "repetitions": 1}, telemetry=True)
    finished = perfkit.run("run", scenario, environ={"PYTHONWARNINGS": "error"})
    assert finished.result["points"][0]["requests"]["ok"] == 20
    assert "Traceback" not in finished.stderr
    assert "Exception ignored" not in finished.stderr
