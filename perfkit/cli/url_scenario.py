"""The scenario of `perfkit run`: a file, the name of a shipped scenario, or a server's URLs with options."""

import argparse
import asyncio
import math
import pathlib
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from perfkit.cli.options import add_settings, whole_number
from perfkit.errors import UsageError
from perfkit.target.apis import APIS, ENDPOINTS, V2, api_with

if TYPE_CHECKING:
    from perfkit.scenario.file import ScenarioSource
    from perfkit.scenario.origins import Origins

_Read = TypeVar("_Read")
DEFAULT_CONCURRENCY, DEFAULT_DURATION, DEFAULT_REPETITIONS = (1, 4, 16), "3s", 3
"""Without a scenario: enough to see where throughput levels off and latency rises, in under a minute per protocol."""
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|(unix|grpc\+unix|http\+unix):")
_GENERATED = ("random", "zeros", "ones", "arange", "omit")
_IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff")
_PERCENTILES = ("p50", "p90", "p95", "p99", "p99_9", "p99_99")
_SHARES = ("error_rate", "wrong_answers")
_PARTS = tuple(f"{part}." for api in APIS.values() for part in api.slo_parts)
# by argparse destination: the option, and the scenario key that replaces it
_KEY_OF_OPTION = {
    "model": ("-m", "target.model=NAME"),
    "concurrency": ("-c", "load.closed.concurrency='[1,4]'"),
    "rates": ("--rate", "load.open.rate='[50,100]'"),
    "duration": ("--duration", "measure.duration=10s"),
    "slo": ("--slo", "slo.p99=50ms"),
    "protocols": ("--protocol", "target.protocols='[http,grpc]'"),
    "shapes": ("--shape", "workload.inputs.NAME='{generate: random, shape: [1,16]}'"),
    "inputs": ("--input", "workload.inputs.NAME='{generate: zeros}'"),
    "batch_size": ("--batch-size", "workload.batch_size=8"),
    "api": ("--api", "target.api=NAME"),
    "endpoint": ("--endpoint", "target.endpoint=NAME"),
}


def add_scenario_or_url_options(parser: argparse.ArgumentParser, *, takes_command: bool = False) -> None:
    """Adds SCENARIO|URL, --set, and the options that describe a scenario if URLs are given; with `takes_command` also cmd:COMMAND, or nothing."""
    what = "a scenario file, the name of a scenario that perfkit ships, or the URLs of a running server, one for each protocol"
    if takes_command:
        what = f"{what}; or cmd:COMMAND, which starts the server; {{port}} in it becomes a free port"
    parser.add_argument("scenario", nargs="*" if takes_command else "+", metavar="SCENARIO|URL", help=what)
    parser.set_defaults(takes_words="scenario", takes_command=takes_command)  # URLs may also follow options
    add_settings(parser)
    group = parser.add_argument_group("with a URL", "These options stand for a scenario file, which --print-scenario prints.")
    group.add_argument("-m", "--model", metavar="NAME", help="the model; may be left out where the server has one alone")
    load = group.add_mutually_exclusive_group()
    default = ",".join(map(str, DEFAULT_CONCURRENCY))
    closed_help = f"requests in flight, each number a load point; default: {default}"
    load.add_argument("-c", "--concurrency", type=_listed(whole_number(1, 65_536)), metavar="N[,N…]", help=closed_help)
    open_help = "Poisson arrivals per second instead, each number a load point"
    load.add_argument("--rate", dest="rates", type=_listed(_number_or_text), metavar="R[,R…]", help=open_help)
    duration_help = f"how long each load point is measured, {DEFAULT_REPETITIONS} times; default: {DEFAULT_DURATION}"
    group.add_argument("--duration", metavar="TIME", help=duration_help)
    slo_help = "a limit such as p99=50ms or error_rate=0.1%%, which decides the exit code; load points that it leaves open are measured again; may be repeated"
    group.add_argument("--slo", type=_slo, action="append", metavar="LIMIT", help=slo_help)
    protocol_help = "measure only these of the URLs' protocols: http, grpc, or both"
    group.add_argument("--protocol", dest="protocols", type=_listed(_protocol), metavar="NAME[,NAME]", help=protocol_help)
    shape_help = "an input's shape without the batch dimension; may be repeated"
    group.add_argument("--shape", dest="shapes", type=_shape, action="append", metavar="INPUT=1,16", help=shape_help)
    input_help = (
        f"an input's values: {', '.join(_GENERATED)}, a .npy file or an image, a YAML list of values, or a mapping as in a scenario; "
        "default: random; may be repeated"
    )
    group.add_argument("--input", dest="inputs", type=_input, action="append", metavar="INPUT=VALUES", help=input_help)
    batch_help = "the first dimension of every input, if the model has a batch dimension; default: 1"
    group.add_argument("--batch-size", type=whole_number(1, 2**31 - 1), metavar="N", help=batch_help)
    add_api(group)
    parser.add_argument("--print-scenario", action="store_true", help="print the scenario as YAML, and send nothing")


def add_api(group: "argparse._ActionsContainer") -> None:
    """Adds --api and --endpoint."""
    api_help = "the API that the server speaks; the texts of language models are streamed; default: v2"
    group.add_argument("--api", choices=tuple(APIS), help=api_help)
    endpoint_help = f"where requests go, if the API has several places for them; default: {ENDPOINTS[0]}"
    group.add_argument("--endpoint", choices=ENDPOINTS, help=endpoint_help)


def api_of(options: argparse.Namespace) -> dict[str, str]:
    """The keys of a target that --api and --endpoint give; raises UsageError if the API has no such endpoint."""
    if options.endpoint is not None and APIS[options.api or V2.name].endpoint(options.endpoint) is None:
        owner = api_with(options.endpoint)
        raise UsageError(f"--endpoint {options.endpoint}: this is one of {owner.title}: add --api {owner.name}")
    return {key: value for key in ("api", "endpoint") if (value := getattr(options, key)) is not None}


def scenario_source(options: argparse.Namespace) -> "ScenarioSource":
    """The scenario that the arguments name or describe; raises ScenarioError and UsageError."""
    from perfkit.scenario.file import find_scenario, read_source
    from perfkit.target.command import COMMAND_PREFIX

    words: list[str] = options.scenario
    if len(words) == 1 and words[0].startswith(COMMAND_PREFIX):
        command = words[0].removeprefix(COMMAND_PREFIX)
        if not options.takes_command:
            raise UsageError(f"{words[0]}: a command that starts the server goes into a scenario, as target.command")
        if not options.model:
            raise UsageError(f"-m MODEL is missing: the model of the server that `{command}` starts")
        return _source_of_target({"command": command, "protocols": options.protocols or ["http"]}, options.model, options)
    urls = [word for word in words if is_url(word)]
    if not urls:
        if len(words) > 1:
            raise UsageError(f"{' '.join(words)}: one scenario at a time")
        path = find_scenario(words[0])
        for name, (option, setting) in _KEY_OF_OPTION.items():
            if getattr(options, name) is not None:
                raise UsageError(f"{option} goes with a URL; with a scenario: --set {setting}")
        return read_source(path)
    if len(urls) < len(words):
        other = next(word for word in words if word not in urls)
        raise UsageError(f"{other}: give either a scenario or URLs; --set target.url=URL measures another server with a scenario")
    return _source_of_urls(urls, options)


def is_url(word: str) -> bool:
    """Whether an argument is a target's URL rather than a file or a name."""
    return _URL.match(word) is not None


def _source_of_urls(urls: list[str], options: argparse.Namespace) -> "ScenarioSource":
    from perfkit.target.address import redacted_url

    if options.model == "" or (options.model is None and options.print_scenario):
        raise UsageError(f"-m MODEL is missing; to list the server's models: perfkit init {redacted_url(urls[0])}")
    api = api_of(options)
    return _source_of_target(target_of_urls(urls, options.protocols) | api, options.model or _only_model(urls, api), options)


def _source_of_target(target: dict[str, Any], model: str, options: argparse.Namespace) -> "ScenarioSource":
    from perfkit.scenario.file import ScenarioSource, scenario_name

    document: dict[str, Any] = {"name": scenario_name(model), "target": {**target, "model": model}}
    origins: Origins = {("target", "url"): "URL", ("target", "urls"): "URL", ("target", "model"): "-m", ("slo",): "--slo"}
    origins |= {("target", "api"): "--api", ("target", "endpoint"): "--endpoint"}
    endpoint = APIS[target.get("api", "v2")].endpoint(target.get("endpoint"))
    if endpoint is not None and endpoint.writes_text:
        document["stream"] = {}
    workload: dict[str, Any] = {}
    if options.batch_size is not None:
        workload["batch_size"] = options.batch_size
    if inputs := _inputs(options.shapes or [], options.inputs or []):
        workload["inputs"] = inputs
        origins["workload", "inputs"] = "--input, --shape"
    if workload:
        document["workload"] = workload
    if options.rates:
        document["load"], origins[("load",)] = {"open": {"rate": options.rates}}, "--rate"
    elif options.concurrency:
        document["load"], origins[("load",)] = {"closed": {"concurrency": options.concurrency}}, "-c"
    if options.duration:
        document["measure"], origins["measure", "duration"] = {"duration": options.duration}, "--duration"
    if options.slo:
        document["slo"] = slo = dict[str, Any]()
        for name, limit in options.slo:
            key, dot, percentile = name.partition(".")
            slo.update({key: limit} if not dot else {key: {**slo.get(key, {}), percentile: limit}})
    return ScenarioSource(document, origins, pathlib.Path("command line"), _add_defaults)


def _only_model(urls: Sequence[str], api: dict[str, str]) -> str:
    """The name of the server's model, if one alone is ready; raises UsageError otherwise, and TargetError."""
    from perfkit.clock import MonotonicClock
    from perfkit.measurement.target_metadata import listed, read_model_index
    from perfkit.target.address import redacted_url

    index = next(filter(None, read_from_all(urls, lambda url: read_model_index(url, MonotonicClock(), api))), ())
    names = list(dict.fromkeys(model.name for model in index if model.state in ("", "READY")))
    if len(names) == 1:
        return names[0]
    found = f"the server has {listed(names)}" if names else "the server lists no model that is ready"
    raise UsageError(f"-m MODEL is missing: {found}; perfkit init {redacted_url(urls[0])} says more")


def read_from_all(urls: Sequence[str], read: "Callable[[str], Awaitable[_Read]]") -> list[_Read]:
    """What is read from each URL at the same time; raises TargetError with a line for each URL that does not answer."""
    import uvloop

    from perfkit.errors import TargetError

    async def read_all() -> list[_Read | BaseException]:
        return await asyncio.gather(*map(read, urls), return_exceptions=True)

    found = uvloop.run(read_all())
    if failed := [one for one in found if isinstance(one, TargetError)]:
        raise TargetError("\n".join(map(str, failed)))
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return [one for one in found if not isinstance(one, BaseException)]


_PLAIN = {"closed", "open", "abandon", "retry"}
"""The keys of `load` beside which a default load is closed."""


def _add_defaults(document: dict[str, Any]) -> None:
    """Adds a default load and default windows if neither options nor --set have given them."""
    from perfkit.scenario.load import is_scan

    load, measure = document.get("load") or {}, document.get("measure") or {}
    if not (isinstance(load, dict) and isinstance(measure, dict)) or load.keys() - _PLAIN or is_scan(load):
        return  # the scenario's checks say what is wrong, and other loads, such as a search or a scan, have defaults of their own
    document |= {"load": load, "measure": measure}
    if "open" not in load:
        load["closed"] = load.get("closed") or {}
        if isinstance(load["closed"], dict):
            load["closed"].setdefault("concurrency", list(DEFAULT_CONCURRENCY))
    if "requests" not in measure:
        measure.setdefault("duration", DEFAULT_DURATION)
    measure.setdefault("repetitions", DEFAULT_REPETITIONS)
    if document.get("slo") and not document.get("sweep"):  # the cases of a sweep are measured in the same repetitions
        measure.setdefault("until_decided", True)


def target_of_urls(urls: list[str], wanted: list[str] | None) -> dict[str, Any]:
    """The key `url` or `urls` of a target; `wanted` has the protocols to measure, None for all. Raises UsageError."""
    from perfkit.target.address import Address, redacted_url

    by_protocol: dict[str, str] = {}
    protocol: str
    for url in urls:
        try:
            protocol = Address.parse(url).protocol
        except ValueError as error:
            raise UsageError(str(error)) from None
        if protocol in by_protocol:
            raise UsageError(f"{redacted_url(by_protocol[protocol])} {redacted_url(url)}: give one URL for each protocol")
        by_protocol[protocol] = url
    for protocol in wanted or ():
        if protocol not in by_protocol:
            example = "grpc://HOST:8001" if protocol == "grpc" else "http://HOST:8000"
            raise UsageError(f"--protocol {protocol}: no URL is for {protocol}: add it, such as {example}")
    chosen = {protocol: url for protocol, url in by_protocol.items() if wanted is None or protocol in wanted}
    return {"url": next(iter(chosen.values()))} if len(chosen) == 1 else {"urls": chosen}


def _inputs(shapes: list[tuple[str, list[int]]], values: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    inputs = {name: dict(section) for name, section in values}
    for name, shape in shapes:
        inputs.setdefault(name, {"generate": "random"})["shape"] = shape
    return inputs


def _listed(parse: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    return lambda text: [parse(part.strip()) for part in text.split(",")]


def _number_or_text(text: str) -> int | float | str:
    """A plain number, as YAML has it; otherwise the text, which the scenario checks."""
    number = float(text) if re.fullmatch(r"[0-9]+(\.[0-9]*)?", text) else math.nan
    return int(number) if number.is_integer() else text if math.isnan(number) else number


def _protocol(text: str) -> str:
    if text not in ("http", "grpc"):
        raise argparse.ArgumentTypeError(f"expected http, grpc, or http,grpc, found {text!r}")
    return text


def _slo(text: str) -> tuple[str, str]:
    match = re.fullmatch(r"\s*([\w.]+)\s*(?:=|<=?)\s*(.+)", text)
    of_what = next((one for one in _PARTS if match and match[1].startswith(one)), "")
    name = match[1].removeprefix(of_what).replace(".", "_") if match else ""
    if not match or name not in (_PERCENTILES if of_what else (*_PERCENTILES, *_SHARES)):
        raise argparse.ArgumentTypeError(
            f"expected {', '.join((*_PERCENTILES, *_SHARES))} with a limit, such as p99=50ms or error_rate=0.1%, or a percentile of "
            f"{', '.join(one.rstrip('.') for one in _PARTS)}, such as first_token.p99=500ms, found {text!r}"
        )
    return f"{of_what}{name}", match[2]


def _shape(text: str) -> tuple[str, list[int]]:
    name, _, shape = text.rpartition("=")
    if not name or not re.fullmatch(r"\[?\s*[0-9]+(\s*[,x]\s*[0-9]+)*\s*\]?", shape, re.ASCII):
        raise argparse.ArgumentTypeError(f"expected an input and its dimensions, such as INPUT0=1,16, found {text!r}")
    return name, [int(dimension) for dimension in re.findall("[0-9]+", shape)]


def _input(text: str) -> tuple[str, dict[str, Any]]:
    name, equals, given = text.partition("=")
    if not (name and equals and given):
        raise argparse.ArgumentTypeError(f"expected an input and its values, such as INPUT0=zeros, found {text!r}")
    if given in _GENERATED:
        return name, {"generate": given}
    if given.endswith(".npy"):
        return name, {"file": given}
    if given.lower().endswith(_IMAGE_SUFFIXES):
        return name, {"image": given}
    from perfkit.errors import ScenarioError
    from perfkit.scenario.yaml_values import parse_yaml

    try:
        value = parse_yaml(given, (), {}, lambda _: name)
    except ScenarioError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if isinstance(value, dict):
        return name, value
    if isinstance(value, list | int | float):
        return name, {"value": value}
    choices = f"{', '.join(_GENERATED)}, a .npy file, an image, [1, 2, 3], or {{strings: [text]}}"
    raise argparse.ArgumentTypeError(f"{name}: expected {choices}, found {given!r}")
