"""`perfkit init`: writes a scenario for a model of a running server, or lists the server's models."""

import argparse
import json
import pathlib
import shlex
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from perfkit.cli.exit_code import ExitCode
from perfkit.cli.output import write_output
from perfkit.cli.url_scenario import DEFAULT_CONCURRENCY, add_api, api_of, read_from_all, target_of_urls
from perfkit.errors import UsageError
from perfkit.scenario.credentials import with_variables
from perfkit.scenario.file import scenario_head, scenario_name, shipped_scenarios
from perfkit.target.apis import APIS
from perfkit.text import one_line

if TYPE_CHECKING:
    from perfkit.measurement.target_metadata import ModelDescription
    from perfkit.protocol.message import IndexedModel, TensorMetadata


_IMAGE_SIDE, _TOKENS, _OTHER = 224, 128, 16
_COMMENT_COLUMN = 42


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.add_argument(
        "urls", nargs="*", metavar="URL", help="the server, such as http://127.0.0.1:8000; a second URL adds the other protocol"
    )
    parser.add_argument("--list", action="store_true", help="list the scenarios that perfkit ships, and contact no server")
    parser.set_defaults(takes_words="urls", execute=_execute)
    parser.add_argument("-m", "--model", metavar="NAME", help="the model; without it, the server's models are listed")
    add_api(parser)
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE", help="write the scenario to a new file; default: stdout")


def _execute(options: argparse.Namespace) -> ExitCode:
    from perfkit.clock import MonotonicClock
    from perfkit.measurement.target_metadata import describe_model, read_model_index
    from perfkit.target.address import redacted_url

    if options.list:
        print(_shipped())
        return ExitCode.DONE
    if not options.urls:
        raise UsageError("name the URL of a server, such as http://127.0.0.1:8000; --list lists the scenarios that perfkit ships")
    api = api_of(options)
    words = [word for key, value in api.items() for word in (f"--{key}", value)]
    target = target_of_urls(options.urls, None) | api
    if options.model == "":
        raise UsageError("-m: the model's name is empty; without -m, the server's models are listed")
    if options.model is None:
        indexes = read_from_all(options.urls, lambda url: read_model_index(url, MonotonicClock(), api))
        print(_table(next(filter(None, indexes), ()), options.urls, words))
        return ExitCode.DONE
    if options.out is not None and options.out.exists():
        raise UsageError(f"--out {options.out}: the file exists already: remove it, or choose another name")
    described, *_ = read_from_all(options.urls, lambda url: describe_model(url, options.model, MonotonicClock(), api))
    command = shlex.join(["perfkit", "init", *map(redacted_url, options.urls), "-m", options.model, *words])
    folder = pathlib.Path() if options.out is None else options.out.parent
    text = initial_scenario(described, {**target, "model": options.model}, command, folder)
    if options.out is None:
        print(text, end="")
    else:
        write_output("--out", options.out, text)
        print(f"{options.out}: written; to measure it: perfkit run {shlex.quote(str(options.out))}")
    return ExitCode.DONE


def _shipped() -> str:
    """The shipped scenarios by name, each with the first sentence of its comment."""
    texts = {name: path.read_text(encoding="utf-8") for name, path in shipped_scenarios().items()}
    comments = {
        name: " ".join(line.lstrip("# ") for line in text.splitlines()[1:4] if line.startswith("#")) for name, text in texts.items()
    }
    width = max(map(len, comments))
    lines = [
        f"{name.ljust(width)}  {textwrap.shorten(comment.partition('. ')[0].rstrip('.'), 120, placeholder=' …')}"
        for name, comment in comments.items()
    ]
    return "\n".join([*lines, "", "to measure one: perfkit run densenet; to see it: perfkit run densenet --print-scenario"])


def _table(index: "Sequence[IndexedModel]", urls: Sequence[str], words: Sequence[str] = ()) -> str:
    """The server's models with version, state and reason, one per line; raises UsageError if it lists none."""
    from perfkit.target.address import redacted_url

    if not index:
        over_http = any(url.lower().startswith("http") for url in urls)
        other = "" if over_http else ", or add its HTTP URL: KServe's servers list their models over HTTP alone"
        raise UsageError(f"the server does not list its models: name one with -m{other}")
    rows = [(one_line(one.name), one_line(one.version), one_line(one.state), one_line(one.reason)) for one in index]
    titles = ("model", "version", "state")
    widths = [max(len(titles[column]), *(len(row[column]) for row in rows)) for column in range(3)]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, [*widths, 0], strict=False)).rstrip() for row in (titles, *rows)]
    return "\n".join(
        [*lines, "", f"a scenario for one of them: perfkit init {shlex.join([*map(redacted_url, urls), '-m', rows[0][0], *words])}"]
    )


def initial_scenario(described: "ModelDescription", target: dict[str, Any], command: str, folder: pathlib.Path) -> str:
    """The scenario as YAML, to be stored in `folder`; its first comment names `command`, which made it."""
    metadata, config = described.metadata, described.config
    server = one_line(f"{described.server.name} {described.server.version}".strip()) or "a server without a name"
    document, keys = with_variables({"target": target})
    target = document["target"]
    lines = [
        *scenario_head(keys, folder),
        f"# Made by `{one_line(command)}` from the metadata of {server}.",
        f"name: {_yaml(scenario_name(target['model']))}",
        "target:",
        *(f"  {key}: {_yaml(value)}" for key, value in target.items()),
    ]
    if metadata.versions:
        versions = ", ".join(map(one_line, metadata.versions))
        lines.append(_commented(f"  # version: {_yaml(str(metadata.versions[-1]))}", f"the server has {versions}; by default it chooses"))
    lines += [
        _commented("  # timeout: 30s", "a request that takes longer has failed"),
        '  # headers: {authorization: "Bearer ${TOKEN}"}   # from the environment; never stored in a result',
        "workload:",
    ]
    api = APIS[target.get("api", "v2")]
    endpoint = api.endpoint(target.get("endpoint"))
    if config.max_batch_size > 0:
        lines.append(
            _commented("  batch_size: 1", f"the model takes up to {config.max_batch_size}; shapes below are without this dimension")
        )
    writes_text = endpoint is not None and endpoint.writes_text
    slo, rates = ("{first_token: {p99: 500ms}}", "[0.5, 1, 2]") if writes_text else ("{p99: 50ms}", "[50, 100]")
    lines += _prompt_lines(writes_text=writes_text) if api.takes_prompts else _input_lines(described)
    lines += [
        "load:",
        _commented(f"  closed: {{concurrency: {list(DEFAULT_CONCURRENCY)}}}", "requests in flight; each value is a load point"),
        _commented(f"  # open: {{rate: {rates}}}", "in place of closed: arrivals per second, as users send them"),
        _commented(f"  # search: {{slo: {slo}}}", "in place of closed: the highest rate that meets an SLO"),
        "measure:",
        _commented("  warmup: auto", "found in the data, at least a second"),
        _commented("  duration: 10s", "of each load point, in each repetition"),
        "  repetitions: 3",
        _commented(f"# slo: {slo[:-1]}, error_rate: 0.1%}}", "decides the exit code"),
    ]
    return "\n".join(lines) + "\n"


def _input_lines(described: "ModelDescription") -> list[str]:
    metadata, has_batch = described.metadata, described.config.max_batch_size > 0
    lines = ["  inputs:"]
    if not metadata.inputs:
        lines = [_commented("  inputs: {}", "the server does not describe them: give the name, datatype and shape of each, such as")]
        lines.append("  # inputs: {INPUT: {generate: random, datatype: FP32, shape: [1, 4]}}")
    for tensor in metadata.inputs:
        lines.append(_input_line(tensor, has_batch=has_batch, is_optional=_is_optional(tensor.name, described)))
    if metadata.inputs:
        lines.append("    # in place of generate: {file: x.npy}, {image: x.jpg, scaling: inception}, {strings: [a, b]}, {value: [1, 2]}")
    outputs = [{"name": tensor.name} for tensor in metadata.outputs]
    return [*lines, _commented(f"  # outputs: {_yaml(outputs)}", "by default all")]


def _prompt_lines(*, writes_text: bool) -> list[str]:
    values = "    values: [Explain in a few paragraphs how a lighthouse works.]"
    lines = [
        "  prompts:",
        values,
        "    # file: prompts.jsonl   # in place of values: lines with prompt or messages, or a file in ShareGPT's form",
    ]
    if not writes_text:
        return lines
    return [
        *lines,
        _commented("    max_tokens: 128", "or a law: {uniform: [50, 200]}, {lognormal: 200, sigma: 0.8}"),
        _commented("    extra: {temperature: 0}", "further members of each request, such as ignore_eos: true"),
        _commented("stream: {}", "remove it for answers in one piece"),
    ]


def _input_line(tensor: "TensorMetadata", *, has_batch: bool, is_optional: bool) -> str:
    shape = list(tensor.shape[1:] if has_batch else tensor.shape)
    section: dict[str, Any] = {"generate": "random"}
    comment = f"{one_line(tensor.datatype)} {shape}"
    if -1 in shape:
        section["shape"] = [
            _chosen(tensor.datatype, shape, axis, has_batch=has_batch) if size < 0 else size for axis, size in enumerate(shape)
        ]
        comment += "; -1 is open, and its size here is only a guess: set the one that you use"
    if is_optional:
        comment += "; optional: `omit` leaves it out"
    return _commented(f"    {_yaml(tensor.name)}: {_yaml(section)}", comment)


def _chosen(datatype: str, shape: list[int], axis: int, *, has_batch: bool) -> int:
    """A guess at the size of an open dimension: 1 for strings and a likely batch dimension, else a usual size of images or tokens."""
    if datatype == "BYTES" or (axis == 0 and not has_batch):
        return 1
    if len(shape) >= 3 and (1 in shape or 3 in shape):  # channels
        return _IMAGE_SIDE
    return _TOKENS if datatype in ("INT32", "INT64") else _OTHER


def _is_optional(name: str, described: "ModelDescription") -> bool:
    return bool(described.config.required_inputs) and name not in described.config.required_inputs


def _commented(text: str, comment: str) -> str:
    return f"{text.ljust(_COMMENT_COLUMN)}   # {comment}"


def _yaml(value: object) -> str:
    """A value as YAML on one line."""
    import yaml

    text: str = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, sort_keys=False, width=10**9)
    text = text.removesuffix("...\n").strip()
    return json.dumps(value) if "\n" in text else text  # JSON is valid YAML, and escapes line breaks
