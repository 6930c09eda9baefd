"""The sweep of a scenario: what it sets, how large it may be, and which of its cases are measured interleaved."""

import json
import math
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from perfkit.errors import ScenarioError
from perfkit.scenario.load import ClosedLoadSpec, OpenLoadSpec
from perfkit.scenario.model import Scenario
from perfkit.scenario.origins import Origins, origin_of
from perfkit.target.address import Address

CHOICES = "choices"
"""The key of `sweep` whose values are named sets of keys, in place of values of one key."""
_NOT_SWEPT = ("sweep", "schema", "rank")
_MAX_CASES, _MAX_SWEPT_VALUES = 10_000, 2_000_000
# keys of `target` that are of the client alone
_OF_CLIENT = {"engine", "timeout_ns", "max_connections", "streams_per_connection", "max_answer_bytes", "compression"}
_DOORS = {"url", "urls", "protocols", "api", "endpoint"}
_OF_SERVER = {"target", "server", "measure", "fleet", "telemetry", "metrics", "gpu"}
_MOST_INTERLEAVED = 32
"""Their requests are all in memory."""


def take_sweep(document: dict[str, Any], origins: Origins, path: pathlib.Path) -> tuple[dict[str, list[Any]], dict[str, dict[str, Any]]]:
    """Removes the sweep from a document and returns it, with the names of the choices as values of `choices`; and what each choice sets."""
    sweep = document.pop("sweep", None)
    if sweep is None:
        return {}, {}
    if not isinstance(sweep, dict) or not sweep:
        raise ScenarioError(
            f"{origin_of(('sweep',), origins, path)}: sweep: expected keys and their values, such as workload.batch_size: [1, 4, 8]"
        )
    choices = sweep.get(CHOICES, {})
    if CHOICES in sweep:
        where = f"{origin_of(('sweep', CHOICES), origins, path)}: sweep.{CHOICES}"
        if not isinstance(choices, dict) or not choices or not all(isinstance(one, dict | None) for one in choices.values()):
            raise ScenarioError(
                f"{where}: expected names and the keys that each sets, such as {{plain: {{}}, gzip: {{target.compression: gzip}}}}"
            )
        choices = {name: one or {} for name, one in choices.items()}
        sweep = {**sweep, CHOICES: list(choices)}
    for key in (key for one in choices.values() for key in one):
        if key == "name" or key.partition(".")[0] in _NOT_SWEPT or key in sweep:
            raise ScenarioError(f"{where}: {key} cannot be set by a choice{', because it is swept itself' if key in sweep else ''}")
    for key, values in sweep.items():
        where = f"{origin_of(('sweep', key), origins, path)}: sweep.{key}"
        if not isinstance(values, list) or not values:
            raise ScenarioError(f"{where}: expected a list of values, such as [1, 4, 8]")
        if len({json.dumps(value, default=str, sort_keys=True) for value in values}) < len(values):
            raise ScenarioError(f"{where}: values must be unique; use measure.repetitions to measure one again")
        if key == "name" or key.partition(".")[0] in _NOT_SWEPT:
            raise ScenarioError(f"{where}: this key cannot be swept")
    return sweep, choices


def check_overridden_choices(choices: Mapping[str, Mapping[str, Any]], overridden: Collection[str]) -> None:
    """Raises ScenarioError if a choice would replace the value of an override."""
    keys = {key.lower() for one in choices.values() for key in one}
    for override in overridden:
        if clash := [key for key in keys if f"{override.lower()}.".startswith(f"{key}.") or f"{key}.".startswith(f"{override.lower()}.")]:
            raise ScenarioError(f"{override} has no effect for every case, because a choice sets {clash[0]}: change sweep.{CHOICES}")


def check_sweep_size(lengths: Mapping[str, int], values: int, origin: str) -> None:
    """Raises ScenarioError if the cases of a sweep are too many; `values` is the number of values in the scenario, each case's."""
    cases = math.prod(lengths.values())
    product = f"{' × '.join(map(str, lengths.values()))} = {cases:,} cases" if len(lengths) > 1 else f"{cases:,} cases"
    if cases > _MAX_CASES:
        raise ScenarioError(f"{origin}: sweep: {product}, and {_MAX_CASES:,} are the most: remove values of {', '.join(lengths)}")
    if cases > 1 and cases * values > _MAX_SWEPT_VALUES:
        limit = f"{cases * values:,}, and {_MAX_SWEPT_VALUES:,} are the most"
        raise ScenarioError(f"{origin}: sweep: {product} of {values:,} values each are {limit}: put large values into files")


def interleaved_groups(cases: Sequence[tuple[int, Scenario]]) -> list[list[int]]:
    """The cases, given with their numbers, in groups that are measured interleaved, in the order of their first cases.

    The cases of a group have the same server, the same telemetry, `measure` and `fleet`, and fixed loads: a search chooses its rates by
    itself, and is measured alone, and so is a mix. A server may be asked over several protocols and APIs: at one URL each, on one host.
    """
    doors: dict[tuple[str, str], set[str]] = {}
    for number, scenario in cases:
        doors.setdefault((_key(number, scenario, of_host=True), _protocol(scenario)), set()).add(_key(number, scenario))
    groups: dict[str, list[int]] = {}
    for number, scenario in cases:
        of_host = _key(number, scenario, of_host=True)
        is_one_server = all(len(urls) == 1 for (host, _), urls in doors.items() if host == of_host)
        groups.setdefault(of_host if is_one_server else _key(number, scenario), []).append(number)
    return [group[at : at + _MOST_INTERLEAVED] for group in groups.values() for at in range(0, len(group), _MOST_INTERLEAVED)]


def _key(number: int, scenario: Scenario, *, of_host: bool = False) -> str:
    """A text that is the same for cases with the same server; with `of_host` its URLs, protocols and API may differ."""
    if scenario.workloads is not None or not isinstance(scenario.load, ClosedLoadSpec | OpenLoadSpec):
        return str(number)
    target = scenario.target
    has_doors = of_host and target.command is None and not target.secrets
    exclude = {"target": _OF_CLIENT | (_DOORS if has_doors else set())}
    document = scenario.model_dump(mode="json", include=_OF_SERVER, exclude=exclude)
    if has_doors:
        document["hosts"] = sorted({Address.parse(url).host for urls in target.urls_by_protocol.values() for url in urls})
    return json.dumps(document, sort_keys=True)


def _protocol(scenario: Scenario) -> str:
    return f"{scenario.target.spoken_api} {sorted(scenario.target.load_protocols)}"
