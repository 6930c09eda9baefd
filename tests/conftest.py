"""What holds for every test."""

import contextlib
import gc
import importlib
import pathlib
import signal
import subprocess

import hypothesis
import pytest

from perfkit.result.telemetry_file import convert_to_parquet
from tests import forked
from tests.chromium import chromium

ROOT = pathlib.Path(__file__).parents[1]

# a deadline would be an assertion about time, which a busy machine fails; the examples are others in each run, and more with
# `pytest --hypothesis-profile=long`
hypothesis.settings.register_profile("long", deadline=None, max_examples=1000)
hypothesis.settings.register_profile("perfkit", deadline=None, max_examples=25)
hypothesis.settings.load_profile("perfkit")

# the tests of SIGHUP start children, which would inherit that `nohup` ignores it
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Collected tests are no garbage: every collection would go through ten thousand, as would each load point, which begins with one."""
    gc.disable()
    try:
        _compile_tests_together(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _compile_tests_together(config):
    """Each of several processes of a whole run first imports a part of its own, which none of the others has to compile in a new checkout."""
    own = getattr(config, "workerinput", {"workerid": "gw0", "workercount": 1})
    if own["workercount"] > 1 and config.args == ["tests"]:
        modules = sorted(path.relative_to(ROOT).with_suffix("").parts for path in (ROOT / "tests").rglob("test_*.py"))
        start = len(modules) * int(own["workerid"].removeprefix("gw")) // own["workercount"]
        for parts in modules[start:] + modules[:start]:
            with contextlib.suppress(Exception, pytest.skip.Exception):  # as pytest says when it collects the module
                importlib.import_module(".".join(parts))


@pytest.fixture(autouse=True, scope="session")
def _telemetry_is_converted_in_the_tests_process():
    """Hundreds of runs would each start a Python with pyarrow; `tests/result/test_telemetry_file.py` and runs as processes start it."""

    def convert(module, folder, **_):
        assert module == convert_to_parquet.__module__
        convert_to_parquet(pathlib.Path(folder))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("perfkit.process.start_module.run_module", convert)
        yield


@pytest.fixture(autouse=True, scope="session")
def _processes_are_forked():
    """Forks the processes that runs in the tests' process start; `starts_python` is for tests of processes."""
    with forked.forking():
        yield


@pytest.fixture
def starts_python():
    """Children are Python processes that perfkit has started, from the first import on."""
    forked.use(subprocess)
    yield
    forked.use(forked.by_forks)


@pytest.fixture(scope="session")
def browser():
    """One Chromium for the pages of reports and of the documentation site."""
    with chromium() as started:
        yield started


@pytest.fixture(autouse=True, scope="session")
def _results_of_coroutines_are_not_written_out():
    """Before Python 3.12 the end of `asyncio.run` makes text of the result: `signal` looks its handler up among numbers, and an error names it."""
    look_up = vars(signal)["_int_to_enum"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signal, "_int_to_enum", lambda value, kind: look_up(value, kind) if isinstance(value, int) else value)
        yield
