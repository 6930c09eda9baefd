"""The pytest plugin, in tests of its own: which pass, which fail, and with what message."""

import importlib
import pathlib
import re
import tomllib

import pytest

from tests.json_server import serving, v2_handler

pytest_plugins = ["pytester"]
ROOT = pathlib.Path(__file__).parents[1]
# named, since an older installation may not declare it
OPTIONS = ("-p", "no:perfkit", "-p", "perfkit.pytest_plugin", "-p", "no:randomly", "-p", "no:cacheprovider")
TESTS = """
import pytest

import perfkit as library

SCENARIO = {
    "target": {"url": "http://127.0.0.1:PORT", "model": "m"},
    "load": {"closed": {"concurrency": 16}},
    "measure": {"warmup": "0s", "requests": 200, "repetitions": 1},
    "telemetry": False,
}

@pytest.mark.perfkit(slo={"p50": "1us", "error_rate": "0.1%"})
def test_too_slow(perfkit):
    perfkit.run(SCENARIO, ["measure.requests=550"])

@pytest.mark.perfkit(slo={"p50": "30s"})
def test_fast_enough(perfkit, tmp_path):
    result = perfkit.run(SCENARIO, out=tmp_path / "mine")
    assert (tmp_path / "mine" / "result.json").exists()
    assert perfkit.results == [result]
    assert result.summary[0].slo.verdict == "satisfied"

@pytest.mark.perfkit(slo={"p50": "1us"})
def test_loaded(perfkit):
    perfkit.run(library.load_scenario({**SCENARIO, "slo": {"p50": "30s"}}))

@pytest.mark.perfkit(slo={"p99_9": "30s"})
def test_inconclusive(perfkit):
    perfkit.run(SCENARIO)

@pytest.mark.perfkit(slo={"p99_9": "30s"}, on_inconclusive="pass")
def test_accepted(perfkit):
    perfkit.run(SCENARIO)

@pytest.mark.perfkit(slo={"p99": "1s"})
def test_measures_nothing(perfkit):
    pass

@pytest.mark.perfkit(slo={"p99": "1s"})
def test_skips(perfkit):
    pytest.skip("no server here")
"""


# no busy machine decides an outcome: the generator's influence is not judged, and as many samples are enough as if they were independent;
# windows of fewer than 600 requests are not judged for drift
UNDISTURBED = """
import pytest
from tests.undisturbed import undisturbed

@pytest.fixture(autouse=True)
def undisturbed_runs(monkeypatch):
    monkeypatch.setattr("perfkit.points.pool.percentile_intervals", lambda *_: {})
    with undisturbed():
        yield
"""


def test_the_entry_point_names_the_plugin():
    entries = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    assert importlib.import_module(entries["perfkit"]).Measurements.__name__ == "Measurements"


def test_a_missed_slo_fails_the_test_with_the_figures(pytester, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with serving(v2_handler(lambda _: None)) as port:
        pytester.makepyfile(TESTS.replace("PORT", str(port)))
        pytester.makeconftest(UNDISTURBED)
        finished = pytester.runpytest_subprocess(*OPTIONS, "-v")  # NumPy cannot be imported twice in one process
    outcomes = dict(re.findall(r"::test_(\w+) ([A-Z]+) ", finished.stdout.str()))
    assert outcomes == {
        "too_slow": "FAILED", "fast_enough": "PASSED", "loaded": "FAILED", "inconclusive": "FAILED", "accepted": "PASSED",
        "measures_nothing": "ERROR", "skips": "SKIPPED",
    }  # fmt: skip
    shown = finished.stdout.str()
    for test in ("too_slow", "loaded"):
        (section,) = re.findall(rf"_ test_{test} _+\n(.*?)\n__", shown, re.DOTALL)
        assert re.fullmatch(
            r"http, concurrency 16: [\d,.]+/s, p50 .*, p99 .*\n    The SLO is violated: p50 is .*, above 1 µs\.\nresult: .*run-1", section
        )
    assert re.search(
        r"The SLO is inconclusive: p99\.9: 0 of 200 are above 30 s, too few to tell whether more than 0\.1 % of all are.* \(measure about \d+ times as long\)\.",
        shown,
    )
    assert "the test has an SLO, but measured nothing: call perfkit.run(...)" in shown


@pytest.mark.parametrize(
    ("marker", "arguments", "message"),
    [
        ('slo={"p99": "1s"}', "", "*judges what the fixture perfkit measures: add it to the arguments*"),
        ('slo="p99=1s"', "perfkit", "*takes slo={...} and on_inconclusive, an SLO is missing*"),
        ('slo={"p99": "1s"}, unit="s"', "perfkit", "*found unit*"),
        ('slo={"p99": "1s"}, on_inconclusive="skip"', "perfkit", '*on_inconclusive is "fail" or "pass"*'),
    ],
)
def test_an_slo_that_nothing_is_judged_by_is_refused(pytester, marker, arguments, message):
    pytester.makepyfile(f"import pytest\n\n@pytest.mark.perfkit({marker})\ndef test_it({arguments}):\n    pass\n")
    refused = pytester.runpytest_inprocess(*OPTIONS)
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines([message])
