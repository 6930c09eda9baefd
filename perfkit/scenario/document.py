"""A scenario as a person would write it, to be kept in results: defaults filled in, secrets left out."""

import math
from typing import Any

from perfkit.scenario.credentials import is_shown
from perfkit.scenario.model import Scenario
from perfkit.target.address import redacted_url

REDACTED = "<redacted>"


def scenario_document(scenario: Scenario) -> dict[str, Any]:
    """Plain values for JSON or YAML; header values are shown only where they tell nobody's secret, credentials in the URL never."""
    document: dict[str, Any] = scenario.model_dump(mode="json", by_alias=True, exclude_none=True)
    if "search" in document["load"]:
        del document["measure"]["repetitions"]  # there are none
    target = document["target"]
    target["headers"] = {name: value if is_shown(name, value) else REDACTED for name, value in scenario.target.headers.items()}
    if scenario.target.url is not None:
        target["url"] = redacted_url(scenario.target.url)
    if scenario.target.metrics_url is not None:
        target["metrics_url"] = redacted_url(scenario.target.metrics_url)
    document["metrics"]["url"] = [redacted_url(url) for url in scenario.metrics.url]
    inputs = document["workload"]["inputs"]
    document["workload"]["inputs"] = {name: _finite(one) for name, one in inputs.items()}
    return document


def _finite(value: Any) -> Any:
    """Writes the numbers that JSON lacks as YAML does: `.nan`, `.inf`, `-.inf`."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else f"{'-' if value < 0 else ''}.inf"
    return value
