"""The pytest plugin: a fixture that measures, and a marker with the SLO that a test's measurements must meet.

    @pytest.mark.perfkit(slo={"p99": "50ms", "error_rate": "0.1%"})
    def test_latency(perfkit):
        perfkit.run({"target": {"url": "http://127.0.0.1:8000", "model": "simple"}, "load": {"closed": {"concurrency": 4}}})

Every run of pytest imports this module, so its own imports must be fast.
"""

import json
import os
import pathlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import pytest

import perfkit as library

if TYPE_CHECKING:
    from perfkit.result.model import Point
    from perfkit.scenario.file import LoadedScenario
    from perfkit.scenario.model import Scenario

_MARKER = (
    'perfkit(slo, on_inconclusive="fail"): the SLO that the measurements of the fixture perfkit must meet, such as '
    '{"p99": "50ms", "error_rate": "0.1%"}; on_inconclusive="pass" accepts too few samples'
)

_HAS_PASSED = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marker."""
    config.addinivalue_line("markers", _MARKER)


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Rejects markers with wrong arguments, and markers on tests without the fixture; raises pytest.UsageError."""
    for item in items:
        marker = item.get_closest_marker("perfkit")
        if marker is None:
            continue
        unknown = sorted(set(marker.kwargs) - {"slo", "on_inconclusive"})
        if marker.args or unknown or not isinstance(marker.kwargs.get("slo"), Mapping):
            found = f"found {', '.join(unknown)}" if unknown else "an SLO is missing"
            raise pytest.UsageError(f"{item.nodeid}: the marker perfkit takes slo={{...}} and on_inconclusive, {found}")
        if marker.kwargs.get("on_inconclusive", "fail") not in ("fail", "pass"):
            raise pytest.UsageError(f'{item.nodeid}: on_inconclusive is "fail" or "pass"')
        if "perfkit" not in getattr(item, "fixturenames", ()):
            raise pytest.UsageError(f"{item.nodeid}: the marker perfkit judges what the fixture perfkit measures: add it to the arguments")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Records whether the test itself has passed: one that was skipped or failed need not have measured."""
    report = yield
    if call.when == "call":
        item.stash[_HAS_PASSED] = report.passed
    return report


class Measurements:
    """The fixture `perfkit`: measures scenarios, and fails the test if a load point misses the marker's SLO or is invalid."""

    def __init__(self, slo: Mapping[str, Any] | None, on_inconclusive: Literal["fail", "pass"], folder: pathlib.Path) -> None:
        self.results: list[library.Result] = []
        """The results of this test's runs so far, in order."""
        self.was_used = False
        self._slo, self._on_inconclusive, self._folder = slo, on_inconclusive, folder

    def run(
        self,
        scenario: "str | os.PathLike[str] | Mapping[str, Any] | Scenario | LoadedScenario",
        settings: Sequence[str] = (),
        *,
        out: str | os.PathLike[str] | None = None,
    ) -> "library.Result":
        """Measures like `perfkit.run`, without a report; the marker's SLO replaces that of the scenario.

        The result is stored in `out`, or in a temporary folder of pytest. The test fails, with the figures of all load points, if the run
        is not complete, or if a load point is invalid, violates the SLO, or has too few samples to be judged (unless the marker accepts
        that). Without an SLO, the run only has to be complete and valid.
        """
        self.was_used = True
        if isinstance(scenario, str | os.PathLike | Mapping):
            own = [] if self._slo is None else [f"slo={json.dumps(dict(self._slo))}"]
            loaded = library.load_scenario(scenario, [*settings, *own])
        else:
            loaded = library.load_scenario(scenario, settings)
            if self._slo is not None:
                document = loaded.scenario.model_dump(mode="json", by_alias=True, exclude_none=True)
                model = type(loaded.scenario).model_validate({**document, "slo": dict(self._slo)})
                loaded = type(loaded)(model, loaded.folder, loaded.overrides)
        result = library.run(loaded, out=self._folder / f"run-{len(self.results) + 1}" if out is None else out, report=False)
        self.results.append(result)
        if problem := describe_failure(result, self._on_inconclusive):
            pytest.fail(problem, pytrace=False)
        return result


@pytest.fixture
def perfkit(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measurements]:
    """Measures scenarios with `perfkit.run(...)`, and checks them against the marker's SLO; see `Measurements`."""
    marker = request.node.get_closest_marker("perfkit")
    options = dict(marker.kwargs) if marker is not None else {}
    measurements = Measurements(options.get("slo"), options.get("on_inconclusive", "fail"), tmp_path_factory.mktemp("perfkit"))
    yield measurements
    if marker is not None and not measurements.was_used and request.node.stash.get(_HAS_PASSED, False):
        pytest.fail("the test has an SLO, but measured nothing: call perfkit.run(...)", pytrace=False)


def describe_failure(result: "library.Result", on_inconclusive: Literal["fail", "pass"]) -> str:
    """The reasons for which a measurement fails its test, with the figures of every load point; empty if it passes."""
    failing = [
        point
        for point in result.summary
        if not point.valid
        or (
            point.slo
            and (
                point.slo.verdict == "violated"
                or (point.slo.verdict == "inconclusive" and (on_inconclusive == "fail" or point.slo.is_beyond))
            )
        )
    ]
    if result.status == "complete" and not failing:
        return ""
    reason = f": {result.status_reason}" if result.status_reason else ""
    status = [] if result.status == "complete" else [f"the measurement is {result.status}{reason}"]
    return "\n".join([*status, *(line for point in result.summary for line in _describe_point(point)), f"result: {result.folder}"])


def _describe_point(point: "Point") -> Iterator[str]:
    from perfkit.report.live import describe_point

    yield describe_point(point)
    if point.slo is not None:
        yield f"    {point.slo.reason}"
    if not point.valid:
        yield from (f"    {warning.code}: {warning.message}" for warning in point.warnings)
