"""Fleets on Dask, of which a part is killed or interrupted: what is kept, and that nothing is sent twice."""

import contextlib
import json
import signal
import subprocess
import sys

import psutil
import pytest
import trustme
import yaml

from benchmarks.fleet.dask_cluster import DaskCluster
from benchmarks.fleet.fleet_run import Schedule
from benchmarks.fleet.recording_target import INPUT, MODEL
from tests.children import listening
from tests.conditions import until_ended, wait_until

SECRET = "a-token-of-the-tests-1b7f"  # noqa: S105


def is_joined(process):
    """Whether it is a machine, and has not ended."""
    with contextlib.suppress(psutil.Error):
        return "--join" in process.cmdline()
    return False


class Trial:
    """A Dask cluster, a target that notes the number of each request, and a run that sends numbered requests on a schedule."""

    def __init__(self, perfkit, folder):
        self._perfkit, self._folder = perfkit, folder
        self.cluster = DaskCluster(folder, has_nannies=True)
        command = [sys.executable, "-m", "benchmarks.fleet.recording_target", "127.0.0.1", "0"]
        self._target = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._url = f"http://127.0.0.1:{self._target.stdout.readline().split()[-1]}"

    def _ask(self, question):
        self._target.stdin.write(f"{question}\n")
        self._target.stdin.flush()
        return json.loads(self._target.stdout.readline())

    def start(self, seconds, *, rate_per_s=200, **fleet):
        """Starts the run, and returns when the first requests have come."""
        schedule = Schedule.poisson(rate_per_s, seconds)
        schedule.write(self._folder / "trace.jsonl")
        scenario = {
            "target": {"url": self._url, "model": MODEL},
            "workload": {"inputs": {INPUT: {"value": [-1], "encoding": "json"}}},
            "load": {"replay": {"trace": "trace.jsonl"}},
            "measure": {"repetitions": 1, "warmup": "0s", "workers": 1},
            "telemetry": False,
            "fleet": {"kind": "dask", "scheduler": self.cluster.url, "workers": 2, "listen": "127.0.0.1:0", **fleet},
        }
        (self._folder / "scenario.yaml").write_text(yaml.safe_dump(scenario))
        run = self._perfkit.start("run", self._folder / "scenario.yaml", environ={"PERFKIT_FLEET_TOKEN": SECRET})
        run.wait_for_line("2 of 2")
        wait_until(lambda: self._ask("count") >= 20)
        return run, len(schedule.at_ns)

    def machines(self):
        """All processes of machines, without the Dask workers that started them."""
        started = [process for worker in self.cluster.workers if worker.poll() is None for process in self.cluster.processes_of(worker)]
        return [one for process in started if is_joined(process) for one in (process, *process.children(recursive=True))]

    def numbers(self):
        """The numbers of the load's requests that have come; before them the driver has tried the target by the first."""
        return self._ask("take")[2][1:]

    def end(self):
        self.cluster.end()
        self._target.communicate()


@pytest.fixture
def trial(perfkit, tmp_path):
    made = Trial(perfkit, tmp_path)
    yield made
    made.end()


def test_a_cluster_serves_one_run_after_another_whatever_ended_the_one_before(trial, tmp_path):
    run, _ = trial.start(20)
    processes = trial.machines()
    assert listening([run.process, trial.cluster.scheduler, *trial.cluster.workers]) == {"127.0.0.1"}
    run.signal(signal.SIGINT)
    run.wait_for_line("stopping")
    run.signal(signal.SIGINT)
    assert run.finish().code == 130
    until_ended(processes)
    assert trial.machines() == []
    trial.numbers()
    check_a_task_that_dask_starts_again(trial)
    check_an_encrypted_load_goes_on_without_the_scheduler(trial, tmp_path)


def check_a_task_that_dask_starts_again(trial):
    """It is turned away, and the interrupted run keeps its result.

    The nanny starts its Dask worker again at the same address, and Dask's scheduler the task there, which is its default.
    """
    run, wanted = trial.start(60, rate_per_s=50)
    (killed,) = [one for one in psutil.Process(trial.cluster.workers[0].pid).children() if "--multiprocessing-fork" in one.cmdline()]
    processes = trial.machines()
    killed.kill()
    run.wait_for_line("was sent away: Dask has started its task again: a machine that was lost does not come back in the same run")
    run.signal(signal.SIGINT)
    finished = run.finish()
    until_ended(processes)
    assert (finished.code, finished.result["status"]) == (130, "interrupted")
    assert "was lost: its connection broke" in finished.stderr
    numbers = trial.numbers()
    assert len(set(numbers)) == len(numbers) < wanted
    assert [len(machine["lost"]) for machine in finished.result["points"][0]["machines"]].count(1) == 1


def check_an_encrypted_load_goes_on_without_the_scheduler(trial, folder):
    """The parts of all machines add up, and what only they may know stays with them."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    for certificate in (*issued.cert_chain_pems, authority.cert_pem):
        certificate.write_to_path(folder / "chain.pem", append=True)
    run, wanted = trial.start(4, tls_cert="chain.pem", tls_key="key.pem")
    processes = trial.machines()
    commands = [process.cmdline() for process in processes]
    listened_on = listening([run.process, trial.cluster.scheduler, *trial.cluster.workers])
    trial.cluster.scheduler.send_signal(signal.SIGKILL)  # before the assertions: the load is short
    assert sum("--join" in command for command in commands) == 2
    assert SECRET not in str(commands)
    assert listened_on == {"127.0.0.1"}
    run.wait_for_line(f"the Dask scheduler {trial.cluster.url} was lost")
    finished = run.finish()
    until_ended(processes)
    assert sorted(trial.numbers()) == list(range(wanted))
    (point,) = finished.result["points"]
    assert point["requests"]["sent"] == sum(machine["requests"] for machine in point["machines"]) == wanted
    assert [machine["lost"] for machine in point["machines"]] == [[], []]
    logs = trial.cluster.end()
    assert ["the run is over" in log for log in logs] == [True, True]
    assert SECRET not in finished.stderr + str(logs)
