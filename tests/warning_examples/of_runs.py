"""Warnings of a run as a whole: its target before the load, where it runs, its continuation, its report."""

import os
import pathlib
import unittest.mock

from perfkit.api.measurement import _with_reports
from perfkit.api.result import load_result
from perfkit.clock import MonotonicClock
from perfkit.measurement.continuation import WHOLE_POINT, Continuation, WholePoint
from perfkit.measurement.control import Interruption, RunObserver
from perfkit.measurement.run_result import RunResult
from perfkit.measurement.scenario_run import ScenarioRun
from perfkit.result.file import ResultWriter
from perfkit.result.whole_points import StoredPoint, UnfinishedResult
from perfkit.scenario.file import read_document
from perfkit.target.address import Address
from perfkit.target.changed_model import ChangedModel, changed_model_warnings
from perfkit.transport.http.transport import WireHttpTransport
from tests import stored_results
from tests.measurement.test_target_probe import METADATA, Mlserver, Server, ask
from tests.measurement.test_trial_requests import DECLARED, Failing
from tests.points.made_measurement import measurement
from tests.report.conftest import Synthetic
from tests.warning_examples.example import Case, changes, informs


class Undescribed(Server):
    """Has metadata without inputs."""

    metadata = {**METADATA, "inputs": []}  # noqa: RUF012 - read alone


class Sequential(Server):
    """Announces the sequence extension."""

    extensions = ("binary_tensor_data", "sequence")


def _asked(server: Server, **workload) -> Case:
    """The probe of a server."""
    return lambda folder: ask(server, WireHttpTransport, folder, **workload).warnings


def _started(url: str) -> Case:
    """A run of a target, before its first request."""

    def warnings(folder: pathlib.Path):
        loaded = read_document({"name": "s", "target": {"model": "m", "url": url}, "load": {"closed": {"concurrency": 1}}})
        writer = ResultWriter(folder / "result", 0.0)
        try:
            return ScenarioRun(loaded, writer, RunObserver(), Interruption(), MonotonicClock(), "s").warnings
        finally:
            writer.discard()

    return warnings


def _resumed(kernel: str) -> Case:
    """A run that began with kernel 6.1.0 and is continued with another one."""

    def warnings(folder: pathlib.Path):
        begun = stored_results.result()
        stored = StoredPoint(WHOLE_POINT.encoded(WholePoint("p0.r0", 0, 1.0, 0.0, 1.0, (measurement([10**6] * 100, ended=100),))), (0, 0))
        continuation = Continuation(UnfinishedResult(folder, begun, 0.0, (stored,)))
        loaded = read_document({"name": "s", "target": {"model": "m"}, "load": {"closed": {"concurrency": 1}}})
        environment = {**begun.environment, "generator": {**begun.environment["generator"], "kernel": kernel}}
        warning = continuation.compare(RunResult(loaded, {None: loaded}, environment, is_search=False))
        return [] if warning is None else [warning]

    return warnings


def _reported(*, is_blocked: bool) -> Case:
    """A run whose report is drawn; `is_blocked`: where a folder has the page's name."""

    def warnings(folder: pathlib.Path):
        place = folder / "result"
        Synthetic(place, protocols=("http",), concurrencies=(1,), repetitions=1, seconds=2).write()
        if is_blocked:
            (place / "report.html").mkdir()
        return _with_reports(load_result(place), place, RunObserver()).warnings

    return warnings


def _tuned(*, is_back: bool) -> Case:
    """A target whose model a tune has changed; `is_back`: it was put back."""

    def warnings(folder: pathlib.Path):
        address = Address.parse("http://127.0.0.1:8000")
        with unittest.mock.patch.dict(os.environ, {"PERFKIT_STATE_DIR": str(folder / "state")}):
            mark = ChangedModel(address, "m", folder).set()
            mark.clear() if is_back else mark.release()
            return changed_model_warnings([(address, "m")])

    return warnings


EXAMPLES = (
    informs("shared_cpus", "The target runs on this machine", _started("http://127.0.0.1:8000"), _started("http://192.0.2.1:8000")),
    informs("probe_retried", "HTTP 503: the disk is full", _asked(Failing(1, 503)), _asked(Failing(0))),
    informs(
        "no_metadata",
        "does not describe the inputs of model 'm'",
        _asked(Undescribed(), inputs=DECLARED),
        _asked(Server(), inputs=DECLARED),
    ),
    informs("json_tensors", "refuses binary tensors", _asked(Mlserver()), _asked(Server())),
    changes(
        "no_sequences",
        "does not announce the sequence extension",
        _asked(Server(), sequences={"length": 2}),
        _asked(Sequential(), sequences={"length": 2}),
    ),
    changes("resumed_elsewhere", "after a change of its environment: ", _resumed("6.2.0"), _resumed("6.1.0")),
    changes("changed_model", "perfkit tune --restore", _tuned(is_back=False), _tuned(is_back=True)),
    informs("report_missing", "The report was not drawn: ", _reported(is_blocked=True), _reported(is_blocked=False)),
)
