"""Reads a scenario: YAML, the environment's and the command line's overrides, errors with file, line and key path."""

import copy
import dataclasses
import itertools
import json
import os
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import pydantic
import yaml

from perfkit.errors import ScenarioError
from perfkit.scenario.document import REDACTED
from perfkit.scenario.model import Scenario
from perfkit.target.address import redacted_url

ENVIRONMENT_PREFIX = "PERFKIT_SET_"
KeyPath: TypeAlias = tuple[str | int, ...]
_URLS = (("target", "url"), ("target", "metrics_url"), ("metrics", "url"))


@dataclasses.dataclass(frozen=True)
class LoadedScenario:
    """A scenario, the folder its relative paths start from, and the overrides that went into it, in their order."""

    scenario: Scenario
    folder: pathlib.Path
    overrides: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Case:
    """One combination of a sweep: the scenario, and the value of each swept key; none where nothing is swept."""

    loaded: LoadedScenario
    values: Mapping[str, Any]


def read_scenario(path: pathlib.Path, settings: Sequence[str] = (), environ: Mapping[str, str] = os.environ) -> LoadedScenario:
    """Reads a scenario file; precedence: defaults < file < environment < `settings` (`KEY=VALUE`).

    Raises ScenarioError with one line a problem, and for a sweep, which is several scenarios.
    """
    cases = read_cases(path, settings, environ)
    if cases[0].values:
        raise ScenarioError(f"{path}: sweep: this takes one scenario, and the file is a sweep over {len(cases)}; take sweep out")
    return cases[0].loaded


def read_cases(path: pathlib.Path, settings: Sequence[str] = (), environ: Mapping[str, str] = os.environ) -> tuple[Case, ...]:
    """Reads a scenario file as `read_scenario` does; of a sweep every combination, the last key's values changing fastest.

    A setting of a swept key takes the place of its values. Raises ScenarioError with one line a problem.
    """
    document, origins = _read_yaml(path)
    overrides = []
    for name, value in sorted(environ.items()):
        if name.startswith(ENVIRONMENT_PREFIX):
            key = name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("__", ".")
            overrides.append(_override(document, origins, key, value, f"environment {name}"))
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            # what stands behind a key may be a secret
            shown = setting.partition(":")[0].partition("=")[0]
            raise ScenarioError(f"--set {shown}: expected KEY=VALUE, such as load.closed.concurrency='[1,8]'")
        overrides.append(_override(document, origins, key, value, f"--set {key}"))
    sweep = _sweep(document, origins, path)
    fixed = {override.partition("=")[0] for override in overrides}
    for key, set_key in itertools.product(sweep, fixed):
        if set_key.lower().startswith(key.lower() + "."):
            raise ScenarioError(
                f"{set_key} is set over the file, and sweep varies all of {key}: each of its values would replace it; set {key}, or change the sweep"
            )
    keys = [key for key in sweep if key.lower() not in {one.lower() for one in fixed}]
    cases = []
    for values in itertools.product(*(sweep[key] for key in keys)):
        one, its_origins, its_overrides = copy.deepcopy(document), dict(origins), list(overrides)
        for key, value in zip(keys, values, strict=True):
            its_overrides.append(_put(one, its_origins, key, copy.deepcopy(value), _origin(("sweep", key), origins, path)))
        cases.append(Case(_validated(one, its_origins, its_overrides, path), dict(zip(keys, values, strict=True))))
    return tuple(cases)


def _sweep(document: dict[str, Any], origins: Mapping[KeyPath, str], path: pathlib.Path) -> dict[str, list[Any]]:
    """Takes the swept keys and their values out of a document."""
    sweep = document.pop("sweep", None)
    if sweep is None:
        return {}
    here = f"{_origin(('sweep',), origins, path)}: sweep"
    if not isinstance(sweep, dict) or not sweep:
        raise ScenarioError(f"{here}: expected keys of the scenario and their values, such as workload.batch_size: [1, 4, 8]")
    for key, values in sweep.items():
        if not isinstance(values, list) or not values:
            raise ScenarioError(f"{_origin(('sweep', key), origins, path)}: sweep.{key}: expected a list of values, such as [1, 4, 8]")
        if len({json.dumps(value, default=str, sort_keys=True) for value in values}) < len(values):
            raise ScenarioError(
                f"{_origin(('sweep', key), origins, path)}: sweep.{key}: each value stands once; measure.repetitions measures it again"
            )
        if key == "name" or key.partition(".")[0] in ("sweep", "schema"):
            raise ScenarioError(f"{_origin(('sweep', key), origins, path)}: sweep.{key}: this key cannot be swept")
    return sweep


def _validated(document: dict[str, Any], origins: Mapping[KeyPath, str], overrides: Sequence[str], path: pathlib.Path) -> LoadedScenario:
    document = _without_nulls(document)
    document.setdefault("name", re.sub(r"^[^A-Za-z0-9]+|[^\w.-]+", "-", path.stem).lstrip("-") or "scenario")
    try:
        scenario = Scenario.model_validate(document)
    except pydantic.ValidationError as error:
        problems = [
            one for one in error.errors() if not (one["type"] == "too_short" and one["input"])
        ]  # only its wrong elements left it so
        raise ScenarioError("\n".join(_sentence(problem, document, origins, path) for problem in problems)) from None
    return LoadedScenario(scenario, path.parent, tuple(overrides))


def _read_yaml(path: pathlib.Path) -> tuple[dict[str, Any], dict[KeyPath, str]]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ScenarioError(f"{path}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path}: cannot be read: {error}") from None
    origins: dict[KeyPath, str] = {}
    document = _parse(text, (), origins, lambda line: f"{path}:{line}")
    if not isinstance(document, dict):
        raise ScenarioError(f"{path}: a scenario is keys and values, such as name, target and load")
    return document, origins


def _parse(text: str, key_path: KeyPath, origins: dict[KeyPath, str], origin: Callable[[int], str]) -> Any:
    """YAML as plain values, noting the origin of every key and element by its line."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        return _plain(root, key_path, origins, origin) if root else None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, problem = (mark.line + 1 if mark else 1), error.problem or error.context
        # names of aliases and tags are values whose first character should have been quoted: secrets perhaps
        problem = re.sub(r"(alias|tag) '.*'", r"\1: put the value in quotes", str(problem))
    except yaml.reader.ReaderError as error:
        line, problem = text.count("\n", 0, error.position) + 1, f"the character #x{error.character:04x} is not allowed"
    except RecursionError:
        line, problem = 1, "it is nested too deeply, or an alias holds itself"
    raise ScenarioError(f"{origin(line)}: not valid YAML: {problem}")


def _plain(node: yaml.Node, key_path: KeyPath, origins: dict[KeyPath, str], origin: Callable[[int], str]) -> Any:
    here = origins.setdefault(key_path, origin(node.start_mark.line + 1))
    if isinstance(node, yaml.MappingNode):
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = str(key_node.value)
            line = origin(key_node.start_mark.line + 1)
            if key in mapping:
                raise ScenarioError(f"{line}: {_dotted((*key_path, key))}: this key stands here twice; keep one")
            origins[*key_path, key] = line
            mapping[key] = _plain(value_node, (*key_path, key), origins, origin)
        return mapping
    if isinstance(node, yaml.SequenceNode):
        return [_plain(element, (*key_path, index), origins, origin) for index, element in enumerate(node.value)]
    constructor = yaml.SafeLoader("")
    try:
        value = constructor.construct_object(node, deep=True)
        str(value).encode()
    except yaml.YAMLError:
        raise
    except UnicodeEncodeError:
        raise ScenarioError(
            f"{here}: {_dotted(key_path) or 'the scenario'}: holds half of a surrogate pair, which is no character"
        ) from None
    except Exception as error:  # noqa: BLE001 - the library lets out whatever int(), datetime and its own tables raise
        raise ScenarioError(f"{here}: {_dotted(key_path) or 'the scenario'}: cannot be read as YAML: {error}") from None
    finally:
        constructor.dispose()
    return value


def _override(document: dict[str, Any], origins: dict[KeyPath, str], key: str, text: str, origin: str) -> str:
    place, last, walked = _place(document, origins, key, origin)
    value = place[last] = _parse(text, walked, origins, lambda _: origin)
    return _shown_override(walked, key, value, text)


def _put(document: dict[str, Any], origins: dict[KeyPath, str], key: str, value: Any, origin: str) -> str:
    """An override by a value in place of a text."""
    place, last, walked = _place(document, origins, key, origin)
    place[last], origins[walked] = value, origin
    return _shown_override(walked, key, value, value if isinstance(value, str) else json.dumps(value, default=str))


def _place(document: dict[str, Any], origins: dict[KeyPath, str], key: str, origin: str) -> tuple[dict[str, Any], str, KeyPath]:
    """Where a dotted key stands, or will: the mapping, the key in it, and the path; what stood there has no origin any more."""
    *parents, last = key.split(".")
    place: dict[str, Any] = document
    walked: KeyPath = ()
    for part in parents:
        part = _present_key(place, part)  # noqa: PLW2901 - the key as the file spells it
        walked = (*walked, part)
        if place.get(part) is None:
            place[part] = {}
        place = place[part]
        if not isinstance(place, dict):
            raise ScenarioError(f"{origin}: {_dotted(walked)} holds {_shown(place, walked)}, which has no keys")
    last = _present_key(place, last)
    walked = (*walked, last)
    for known in [known for known in origins if known[: len(walked)] == walked]:
        del origins[known]
    return place, last, walked


def _shown_override(walked: KeyPath, key: str, value: Any, text: str) -> str:
    holds_secrets = walked == ("target",) and isinstance(value, dict) and bool({"headers", "url", "metrics_url"} & set(value))
    if walked[:2] == ("target", "headers") or holds_secrets or (walked[:1] == ("metrics",) and "@" in text):
        return f"{key}={REDACTED}"
    return f"{key}={redacted_url(str(value)) if walked in _URLS else text}"


def _present_key(place: Mapping[str, Any], key: str) -> str:
    """The key as it stands in the file, since the environment cannot tell upper from lower case."""
    return next((present for present in place if present == key), None) or next(
        (present for present in place if present.lower() == key), key
    )


def _without_nulls(value: Any) -> Any:
    """Leaves out keys without a value, so that `cpus:` means the default."""
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return value


def _sentence(problem: Any, document: Any, origins: Mapping[KeyPath, str], path: pathlib.Path) -> str:
    key_path = _key_path(problem["loc"], document)
    context, shown = problem.get("ctx", {}), _shown(problem["input"], key_path)
    match problem["type"]:
        case "unknown_key":
            key_path = _key_path((*problem["loc"], context["key"]), document)
            text = problem["msg"]
        case "missing":
            text = "this key is missing"
        case "value_error":
            text = str(context["error"])
        case "not_values" | "variant":
            text = problem["msg"]
        case "not_a_mapping":
            text = f"expected keys and values, found {shown}"
        case "literal_error":
            text = f"expected {context['expected']}, found {shown}"
        case "int_type" | "int_parsing":
            text = f"expected a whole number, found {shown}"
        case "string_type":
            text = f"expected text, found {shown}; put it in quotes"
        case "string_pattern_mismatch":
            text = f"expected letters, digits, '_', '.' and '-', of which a letter or digit first, found {shown}"
        case "tuple_type":
            text = f"expected a list, found {shown}"
        case "dict_type":
            text = f"expected keys and values, found {shown}"
        case "too_short":
            text = "expected at least one, found none"
        case _:
            text = f"{problem['msg'][:1].lower()}{problem['msg'][1:]}, found {shown}"
    return f"{_origin(key_path, origins, path)}: {_dotted(key_path) or 'the scenario'}: {_on_one_line(text)}"


def _shown(value: object, key_path: KeyPath) -> str:
    """What stands at a key, for a sentence; what may hold a secret is not repeated."""
    if key_path == ("target",) or key_path[:2] in (("target", "headers"), *_URLS):
        return "a value that is not shown here"
    return repr(value)


def _key_path(location: Sequence[str | int], document: Any) -> KeyPath:
    """Pydantic's location without the names of union members, which stand in no file."""
    key_path: KeyPath = ()
    for index, part in enumerate(location):
        following = location[index + 1] if index + 1 < len(location) else None
        inner = _child(document, part)
        if following is not None and (inner is None or (_child(inner, following) is None and _child(document, following) is not None)):
            continue
        document, key_path = inner, (*key_path, part)
    return key_path


def _child(document: Any, part: str | int) -> Any:
    if isinstance(document, dict):
        return document.get(part)
    return document[part] if isinstance(document, list) and isinstance(part, int) and part < len(document) else None


def _origin(key_path: KeyPath, origins: Mapping[KeyPath, str], path: pathlib.Path) -> str:
    while key_path and key_path not in origins:
        key_path = key_path[:-1]
    return origins.get(key_path, str(path))


def _dotted(key_path: KeyPath) -> str:
    dotted = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key_path)
    return _on_one_line(dotted.lstrip("."))


def _on_one_line(text: str) -> str:
    return text.replace("\n", "\\n")
