"""The output folder of a run: two runs into one, and a disk that fills while load is sent."""

import signal

import psutil


def test_a_second_run_into_the_same_folder_is_refused_before_any_load(perfkit, write_quick_scenario):
    first = perfkit.start("run", write_quick_scenario(measure={"warmup": "0s", "duration": "300ms", "repetitions": 500}))
    first.wait_for_line("[1/1000]")
    second = perfkit.run("run", write_quick_scenario())
    assert second.code == 2
    assert f"{second.folder}: another perfkit writes there: process {first.process.pid} on " in second.stderr
    assert "target:" not in second.stderr
    first.signal(signal.SIGINT)
    assert first.finish().result["status"] == "interrupted"


def test_a_disk_that_fills_during_a_run_leaves_its_table_and_a_message_that_names_the_file(perfkit, write_quick_scenario):
    scenario = write_quick_scenario(measure={"warmup": "0s", "duration": "300ms", "repetitions": 500})
    # CPython would leave shortened bytecode of the modules imported below the limit, and break every later test
    running = perfkit.start("run", scenario, environ={"PYTHONDONTWRITEBYTECODE": "1"})
    running.wait_for_line("[2/1000]")
    psutil.Process(running.process.pid).rlimit(psutil.RLIMIT_FSIZE, (30_000, 30_000))  # in place of a full disk
    finished = running.finish()
    assert finished.code == 5, finished.stderr
    assert "concurrency" in finished.stdout
    last_line = finished.stderr.splitlines()[-1]
    assert last_line.startswith(f"status: invalid: {finished.folder}.partial cannot be written: File too large (")
    assert "Traceback" not in finished.stderr
    assert not finished.folder.exists()
    assert finished.folder.with_name("out.partial").exists()
