"""Scenario files: YAML, overrides from the environment and the command line, sweeps, the form stored in results, and files made for users."""

import copy
import dataclasses
import errno
import functools
import io
import itertools
import json
import math
import numbers
import os
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pydantic

import perfkit
from perfkit.errors import ScenarioError, nearest
from perfkit.input_file import read_bounded
from perfkit.scenario.credentials import shown_override, with_variables, without_secrets
from perfkit.scenario.load import ReplayLoadSpec
from perfkit.scenario.measure import Rank
from perfkit.scenario.mix import fill_common_parts, place_in_mix, plain_document
from perfkit.scenario.model import Scenario
from perfkit.scenario.origins import KeyPath, Origins, displayed, dotted, origin_of, validation_error
from perfkit.scenario.sweep import CHOICES, check_overridden_choices, check_sweep_size, take_sweep
from perfkit.target.command import check_ports
from perfkit.text import one_line
from perfkit.units import format_bytes

if TYPE_CHECKING:
    from perfkit.trace.recorded import RecordedTrace


ENVIRONMENT_PREFIX = "PERFKIT_SET_"
_PACKAGE = pathlib.Path(perfkit.__file__).absolute().parent
_FOLDER = _PACKAGE / "scenarios"
SCHEMA_FILE = _PACKAGE / "docs" / "scenario.schema.json"
"""The JSON Schema of scenarios, for editors."""


@dataclasses.dataclass(frozen=True)
class ScenarioSource:
    """A scenario as written, before overrides and checks."""

    document: dict[str, Any]
    origins: Origins
    path: pathlib.Path
    """The file that errors name; it gives the scenario its default name, and relative paths refer to its folder."""
    add_defaults: Callable[[dict[str, Any]], None] = lambda _: None
    """Adds to the document, after overrides, the defaults that this source has in place of the scenario's own."""


@dataclasses.dataclass(frozen=True)
class LoadedScenario:
    """A scenario, the folder that its relative paths refer to, and the overrides applied to it, in order."""

    scenario: Scenario
    folder: pathlib.Path
    overrides: tuple[str, ...]

    def workloads(self) -> "tuple[LoadedScenario, ...]":
        """The scenario of each workload of a mix by itself; for a scenario that is no mix, itself."""
        return tuple(dataclasses.replace(self, scenario=plain) for plain in self.scenario.plain_scenarios())

    def by_workload(self) -> "dict[str | None, LoadedScenario]":
        """The scenario of each workload by its name, which is None for a scenario that is no mix."""
        names: list[str | None] = [entry.name for entry in self.scenario.workloads or ()] or [None]
        return dict(zip(names, self.workloads(), strict=True))

    @functools.cached_property
    def trace(self) -> "RecordedTrace | None":
        """The trace that the scenario replays, read once; None without one. Raises ScenarioError if it cannot be read."""
        if not isinstance(self.scenario.load, ReplayLoadSpec):
            return None
        from perfkit.trace.reader import TimeColumn, read_trace  # needs NumPy, which other scenarios can be checked without

        replay = self.scenario.load.replay
        column = None if replay.columns is None else TimeColumn(replay.columns.time, replay.columns.unit)
        return read_trace(self.trace_file, replay.format, model=replay.model or "", column=column)

    @property
    def trace_file(self) -> pathlib.Path:
        """The file of the trace that the scenario replays; only for such a scenario."""
        assert isinstance(self.scenario.load, ReplayLoadSpec)
        return self.folder / self.scenario.load.replay.trace


@dataclasses.dataclass(frozen=True)
class Case:
    """One combination of a sweep with the value of each swept key; without a sweep the scenario itself."""

    loaded: LoadedScenario
    values: Mapping[str, Any]
    """Without header values and credentials of URLs."""
    rank: Rank | None = None
    """How the cases are ranked. It stays out of the scenario, since results do not depend on it."""


def read_scenario(path: pathlib.Path, settings: Sequence[str] = (), environ: Mapping[str, str] = os.environ) -> LoadedScenario:
    """Reads a scenario file; precedence: defaults < file < environment < `settings` (`KEY=VALUE`).

    Raises ScenarioError with one line for each problem, and if the file is a sweep.
    """
    cases = read_cases(path, settings, environ)
    if cases[0].values:
        raise ScenarioError(f"{path}: sweep: the file is a sweep over {len(cases)} scenarios, but one scenario is needed: remove sweep")
    return cases[0].loaded


def read_cases(path: pathlib.Path, settings: Sequence[str] = (), environ: Mapping[str, str] = os.environ) -> tuple[Case, ...]:
    """Reads a scenario file like `read_scenario`; a sweep yields all combinations, the last key varying fastest.

    A setting of a swept key replaces its values. Raises ScenarioError with one line for each problem.
    """
    return make_cases(read_source(path), settings, environ)


def read_document(document: Mapping[str, Any], settings: Sequence[str] = (), environ: Mapping[str, str] = os.environ) -> LoadedScenario:
    """Makes a scenario from the keys and values of a file; relative paths refer to the current folder.

    Overrides have the precedence of `read_scenario`. Raises ScenarioError with one line for each problem, and if the document is a sweep.
    """
    place = pathlib.Path("scenario")
    cases = make_cases(ScenarioSource(_as_yaml_values(document, ()), {}, place), settings, environ)
    if cases[0].values:
        raise ScenarioError(f"{place}: sweep: this is a sweep over {len(cases)} scenarios, but one scenario is needed: remove sweep")
    return cases[0].loaded


def _as_yaml_values(value: Any, key_path: KeyPath) -> Any:
    """A value as YAML would give it: Python mappings, lists, text and numbers; raises ScenarioError for anything else."""
    match value:
        case None | bool() | str():
            return value
        case Mapping():
            return {str(key): _as_yaml_values(inner, (*key_path, str(key))) for key, inner in value.items()}
        case list() | tuple():
            return [_as_yaml_values(inner, (*key_path, index)) for index, inner in enumerate(value)]
        case os.PathLike():
            return os.fspath(value)
        case numbers.Integral():  # including NumPy's
            return int(value)
        case numbers.Real():
            return float(value)
    raise ScenarioError(f"scenario: {dotted(key_path)}: expected text, a number, a list or a mapping, found {type(value).__name__}")


def make_cases(source: ScenarioSource, settings: Sequence[str] = (), environ: Mapping[str, str] = os.environ) -> tuple[Case, ...]:
    """The cases of a scenario that was read or made; see `read_cases` for settings and errors."""
    document, origins, path = copy.deepcopy(source.document), dict(source.origins), source.path
    overrides = []
    for name, value in sorted(environ.items()):
        if name.startswith(ENVIRONMENT_PREFIX):
            key = name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("__", ".")
            overrides.append(_override(document, origins, key, value, f"environment {name}"))
    overrides += _apply_settings(document, origins, settings)
    source.add_defaults(document)
    sweep, choices = take_sweep(document, origins, path)
    overridden = {override.partition("=")[0] for override in overrides}
    for key, override in itertools.product(sweep, overridden):
        if override.lower().startswith(key.lower() + "."):
            raise ScenarioError(f"{override} has no effect, because sweep replaces all of {key}: set {key} instead, or change sweep")
    check_overridden_choices(choices, overridden)
    keys = [key for key in sweep if key.lower() not in {override.lower() for override in overridden}]
    check_sweep_size({key: len(sweep[key]) for key in keys}, len(origins), origin_of(("sweep",), origins, path))
    cases = []
    for values in itertools.product(*(sweep[key] for key in keys)):
        case_document, case_origins, case_overrides = copy.deepcopy(document), dict(origins), list(overrides)
        for key, value in zip(keys, values, strict=True):
            origin = origin_of(("sweep", key), origins, path)
            for one, set_to in choices[value].items() if key == CHOICES else ((key, value),):
                case_overrides.append(_set_value(case_document, case_origins, one, copy.deepcopy(set_to), origin))
        loaded = _validate(case_document, case_origins, case_overrides, path)
        if (rank := loaded.scenario.rank) is not None:
            if not sweep:
                raise ScenarioError(
                    f"{origin_of(('rank',), origins, path)}: rank: it orders the cases of a sweep: add sweep, or remove rank"
                )
            loaded = dataclasses.replace(loaded, scenario=loaded.scenario.model_copy(update={"rank": None}))
        cases.append(Case(loaded, {key: without_secrets(value, key) for key, value in zip(keys, values, strict=True)}, rank))
    return tuple(cases)


def document_with_settings(source: ScenarioSource, settings: Sequence[str]) -> dict[str, Any]:
    """The keys and values of a scenario with the settings applied; raises ScenarioError."""
    document = copy.deepcopy(source.document)
    _apply_settings(document, dict(source.origins), settings)
    source.add_defaults(document)
    return document


def scenario_document(scenario: Scenario) -> dict[str, Any]:
    """A scenario as JSON values, like a file that states every default; without secrets, as results store it."""
    document: dict[str, Any] = without_secrets(scenario.model_dump(mode="json", by_alias=True, exclude_none=True))
    if scenario.workloads is None:
        del document["alone"]
    else:  # what a workload leaves out is not its own
        given = [entry.model_dump(mode="json", by_alias=True, exclude_unset=True) for entry in scenario.workloads]
        document["workloads"] = _with_json_numbers(without_secrets(given, "workloads"))
        if not scenario.weights:
            del document["load"]  # each workload has its own
            return document | {name: _with_json_numbers(document[name]) for name in ("workload", "check")}
    if "search" in document["load"]:
        del document["measure"]["repetitions"]  # a search has none
    return document | {name: _with_json_numbers(document[name]) for name in ("workload", "check")}


def _apply_settings(document: dict[str, Any], origins: Origins, settings: Sequence[str]) -> list[str]:
    """Sets keys in `document` to the values of `--set`; returns the overrides in the form that results store."""
    overrides = []
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            # the text after a key may be a secret
            shown = setting.partition(":")[0].partition("=")[0]
            raise ScenarioError(f"--set {shown}: expected KEY=VALUE, such as load.closed.concurrency='[1,8]'")
        overrides.append(_override(document, origins, key, value, f"--set {key}"))
    return overrides


def _with_json_numbers(value: Any) -> Any:
    """Replaces the numbers that JSON lacks by YAML's texts, `.nan`, `.inf`, `-.inf`, and integers beyond 64 bits by floats."""
    if isinstance(value, dict):
        return {key: _with_json_numbers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_with_json_numbers(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else f"{'-' if value < 0 else ''}.inf"
    # of an input; where no float has that value either, no datatype has, and the run ends before its result
    return float(value) if isinstance(value, int) and 64 < value.bit_length() < 1024 else value


def _validate(document: dict[str, Any], origins: Origins, overrides: Sequence[str], path: pathlib.Path) -> LoadedScenario:
    document = _without_nulls(document)
    document.setdefault("name", scenario_name(path.stem))
    try:
        scenario = Scenario.model_validate(document)
    except pydantic.ValidationError as error:
        raise validation_error(error, document, origins, path) from None
    for index in range(len(scenario.workloads or ())):
        _check_workload(document, index, origins, path)
    if (command := scenario.target.command) is not None:
        started = [plain.target for plain in scenario.plain_scenarios() if plain.target.is_started and not plain.target.urls_by_protocol]
        try:  # each workload by itself has one protocol
            check_ports(command, list(dict.fromkeys(protocol for target in started for protocol in target.load_protocols)))
        except ValueError as error:
            raise ScenarioError(f"{origin_of(('target', 'command'), origins, path)}: target.command: {error}") from None
    return LoadedScenario(scenario, path.parent, tuple(overrides))


def _check_workload(document: dict[str, Any], index: int, origins: Origins, path: pathlib.Path) -> None:
    """Checks one workload of a valid mix as a scenario of its own; `document` is the mix's. Raises ScenarioError."""
    entry = document["workloads"][index]
    try:
        plain = plain_document(fill_common_parts(document), index)
    except ValueError as error:
        key_path = ("workloads", index)
        raise ScenarioError(f"{origin_of(key_path, origins, path)}: {dotted(key_path)}.{error}") from None
    try:
        Scenario.model_validate(plain)
    except pydantic.ValidationError as error:
        raise validation_error(error, plain, origins, path, lambda key_path: place_in_mix(key_path, entry, index)) from None


def read_source(path: pathlib.Path) -> ScenarioSource:
    """Reads a scenario file without checking its keys; raises ScenarioError."""
    from perfkit.scenario.yaml_values import MAX_DOCUMENT_BYTES, parse_yaml  # only now, as below: a run of a URL does without YAML

    try:
        content = read_bounded(path, MAX_DOCUMENT_BYTES, may_be_pipe=True)
        text = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8").read()
    except FileNotFoundError:
        raise ScenarioError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno == errno.EFBIG:
            limit = format_bytes(MAX_DOCUMENT_BYTES)
            raise ScenarioError(
                f"{path}: a scenario has at most {limit}: put large values into files, such as workload.inputs.X.file: x.npy"
            ) from None
        raise ScenarioError(f"{path}: cannot be read: {error}") from None
    origins: Origins = {}
    document = parse_yaml(text, (), origins, lambda line: f"{path}:{line}")
    if not isinstance(document, dict):
        raise ScenarioError(f"{path}: expected the keys of a scenario, such as name, target and load")
    return ScenarioSource(document, origins, path)


def _override(document: dict[str, Any], origins: Origins, key: str, text: str, origin: str) -> str:
    """Sets a key to a YAML text; returns the override as results show it."""
    from perfkit.scenario.yaml_values import parse_yaml

    parent, last, key_path = _locate(document, origins, key, origin)
    value = parent[last] = parse_yaml(text, key_path, origins, lambda _: origin)
    return shown_override(key_path, key, value, text)


def _set_value(document: dict[str, Any], origins: Origins, key: str, value: Any, origin: str) -> str:
    """Sets a key to a value; returns the override as results show it."""
    parent, last, key_path = _locate(document, origins, key, origin)
    parent[last], origins[key_path] = value, origin
    return shown_override(key_path, key, value, value if isinstance(value, str) else json.dumps(value, default=str))


def _locate(document: dict[str, Any], origins: Origins, key: str, origin: str) -> tuple[dict[str, Any], str, KeyPath]:
    """The mapping that a dotted key belongs to, its name there, and its path; removes the origins of the previous value."""
    *parents, last = key.split(".")
    mapping: dict[str, Any] = document
    key_path: KeyPath = ()
    for name in parents:
        part = _existing_key(mapping, name)
        key_path = (*key_path, part)
        if mapping.get(part) is None:
            mapping[part] = {}
        mapping = mapping[part]
        if not isinstance(mapping, dict):
            raise ScenarioError(f"{origin}: {dotted(key_path)} is {displayed(mapping, key_path)}, which has no keys")
    last = _existing_key(mapping, last)
    key_path = (*key_path, last)
    for previous in [previous for previous in origins if previous[: len(key_path)] == key_path]:
        del origins[previous]
    return mapping, last, key_path


def _existing_key(mapping: Mapping[str, Any], key: str) -> str:
    """The key as the file spells it, because names from the environment are in lower case."""
    return key if key in mapping else next((existing for existing in mapping if existing.lower() == key), key)


def _without_nulls(value: Any) -> Any:
    """Removes keys without a value, so that `cpus:` means the default."""
    if isinstance(value, dict):
        nested = {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
        if isinstance(entries := nested.get("workloads"), list):
            nested["workloads"] = [_without_nulls(entry) for entry in entries]
        return nested
    return value


def shipped_scenarios() -> dict[str, pathlib.Path]:
    """The files of the shipped scenarios, by name."""
    return {path.stem: path for path in sorted(_FOLDER.glob("*.yaml"))}


def find_scenario(text: str) -> pathlib.Path:
    """The file given by a path, or by the name of a shipped scenario; an existing file takes precedence.

    Raises ScenarioError if there is neither.
    """
    path = pathlib.Path(text)
    if path.exists() or path.is_symlink():
        return path
    shipped = shipped_scenarios()
    if text in shipped:
        return shipped[text]
    host, colon, port = text.rpartition(":")
    if "://" in text:
        raise ScenarioError(f"{text}: no such file; this command reads a scenario file")
    if host and colon and port.isdecimal():
        raise ScenarioError(f"{text}: no such file; for a server, write http://{text} or grpc://{text}")
    near = nearest(path.stem if path.parent == pathlib.Path() else "", shipped)
    hint = f"; did you mean '{near[0]}', which perfkit ships?" if near else f"; perfkit ships {', '.join(shipped)}"
    raise ScenarioError(f"{text}: no such file{hint if path.parent == pathlib.Path() else ''}")


def scenario_text(document: Mapping[str, Any], comments: Sequence[str] = ()) -> str:
    """A scenario as YAML, to be saved as a file for `perfkit run`; secrets become environment variables, and comments follow the first lines."""
    import yaml

    document, keys = with_variables(document)
    text = yaml.safe_dump(document, sort_keys=False, default_flow_style=None, allow_unicode=True, width=120)
    return "\n".join([*scenario_head(keys), *(f"# {one_line(comment)}" for comment in comments), text])


def scenario_head(keys: Mapping[str, str], folder: pathlib.Path | None = None) -> list[str]:
    """The first lines of a scenario file: its schema for editors, where its keys are described, and its environment variables.

    The schema is named from the file's folder, by default the current one, so that the file serves all who have perfkit in the same place
    beside it, such as in `.venv`. The name of a folder with a space, which ends the schema's path for editors, leaves only a URI.
    """
    path = os.path.relpath(SCHEMA_FILE, (folder or pathlib.Path()).resolve())
    schema = SCHEMA_FILE.as_uri() if re.search(r"[\s#]", path) else path
    lines = [
        f"# yaml-language-server: $schema={schema}",
        "# `perfkit help scenarios` describes every key; `perfkit validate FILE` checks a scenario without sending anything.",
    ]
    if keys:
        lines.append("# Set these environment variables, not percent-encoded; the file does not hold the secrets themselves:")
        lines += [f"#   {name} for {one_line(key)}" for name, key in keys.items()]
    return lines


def scenario_name(name: str) -> str:
    """A valid scenario name, made from the name of a model or a file."""
    return re.sub(r"^[^A-Za-z0-9]+|[^\w.-]+", "-", name).lstrip("-") or "scenario"
