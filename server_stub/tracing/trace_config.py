"""How the server traces: Triton's `--trace-config`, which clients cannot change except for level, rate, count and frequency."""

import dataclasses
import pathlib
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from perfkit.digits import whole_number
from perfkit.errors import UsageError

Mode = Literal["triton", "opentelemetry"]
LEVELS = ("TIMESTAMPS", "TENSORS")
MAX_RATE = 2**32 - 1
"""Practically no request is traced unless it carries a `traceparent`."""
_SERVICE = {"service.name": "triton-inference-server"}
_NUMBERS = {"bsp_schedule_delay": "delay_ms", "bsp_max_queue_size": "max_waiting", "bsp_max_export_batch_size": "max_batch"}


@dataclasses.dataclass(frozen=True, slots=True)
class TraceConfig:
    """The options of tracing. By default nothing is traced, and no client can change that."""

    mode: Mode = "triton"
    level: tuple[str, ...] = ()
    """TIMESTAMPS, TENSORS or both; none is OFF."""
    rate: int = 1000
    """One of this many requests is traced, and with OpenTelemetry each that carries a `traceparent`."""
    count: int = -1
    """How many requests are traced by the rate; -1 is no limit."""
    log_frequency: int = 0
    """Mode triton: a new file after this many traces; 0 is one file, written at the end."""
    file: pathlib.Path | None = None
    """Mode triton: where the traces are written."""
    url: str = ""
    """Mode opentelemetry: where spans are sent by OTLP over HTTP."""
    resource: Mapping[str, str] = dataclasses.field(default_factory=lambda: dict(_SERVICE))
    delay_ms: int = 200
    """Mode opentelemetry: how long spans are collected before they are sent."""
    max_waiting: int = 2048
    """Mode opentelemetry: how many spans may wait to be sent; further requests are not traced."""
    max_batch: int = 512
    """Mode opentelemetry: how many spans are sent at once."""

    @property
    def is_possible(self) -> bool:
        """Whether traces have somewhere to go."""
        return bool(self.url) if self.mode == "opentelemetry" else self.file is not None


def parse_trace_config(pairs: Sequence[str], url: str | None = None) -> TraceConfig:
    """The options of `--trace-config KEY=VALUE …`, as Triton takes them, and of `--trace-url`. Raises UsageError.

    `url` alone traces the requests that carry a `traceparent`.
    """
    values: dict[str, object] = {}
    resource = dict(_SERVICE)
    if url is not None:
        values.update(mode="opentelemetry", level=("TIMESTAMPS",), rate=MAX_RATE, url=url)
    levels: list[str] = []
    for pair in pairs:
        key, equals, value = pair.partition("=")
        prefix, _, setting = key.rpartition(",")
        match prefix, setting:
            case _ if not equals or not value:
                raise UsageError(f"--trace-config {pair}: expected KEY=VALUE, such as level=TIMESTAMPS.")
            case "", "mode" if value in get_args(Mode):
                values["mode"] = value
            case "", "level" if value in ("OFF", *LEVELS):
                levels.append(value)
            case "", "rate":
                values["rate"] = _number(pair, value, 1)
            case "", "count":
                values["count"] = _number(pair, value, -1)
            case "triton", "file":
                values["file"] = pathlib.Path(value)
            case "triton", "log-frequency":
                values["log_frequency"] = _number(pair, value, 0)
            case "opentelemetry", "url":
                values["url"] = value
            case "opentelemetry", "resource" if "=" in value:
                name, _, text = value.partition("=")
                resource[name] = text
            case "opentelemetry", number if number in _NUMBERS:
                values[_NUMBERS[number]] = _number(pair, value, 1)
            case _:
                raise UsageError(
                    f"--trace-config {pair}: use mode=triton|opentelemetry, level=OFF|TIMESTAMPS|TENSORS, rate=N, count=N, "
                    f"triton,file=FILE, triton,log-frequency=N, opentelemetry,url=URL, opentelemetry,resource=NAME=VALUE or "
                    f"{', '.join(f'opentelemetry,{name}=N' for name in _NUMBERS)}."
                )
    if levels:
        values["level"] = tuple(level for level in LEVELS if level in levels)
    return _checked(TraceConfig(**values, resource=resource))  # type: ignore[arg-type]  # each value has its field's type


def _checked(config: TraceConfig) -> TraceConfig:
    if config.level and not config.is_possible:
        missing = "opentelemetry,url=URL" if config.mode == "opentelemetry" else "triton,file=FILE"
        raise UsageError(f"--trace-config level={config.level[0]}: traces need somewhere to go; add --trace-config {missing}.")
    if config.mode == "opentelemetry" and config.url:
        try:
            parts = urllib.parse.urlsplit(config.url)
            is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
        except ValueError:
            is_usable = False
        if not is_usable:
            raise UsageError(f"the URL for traces, {config.url}, is not one: expected such as http://127.0.0.1:4318/v1/traces.")
        if config.max_batch > config.max_waiting:
            raise UsageError(
                f"--trace-config opentelemetry,bsp_max_export_batch_size={config.max_batch}: "
                f"at most bsp_max_queue_size, which is {config.max_waiting}."
            )
    return config


def _number(pair: str, text: str, minimum: int) -> int:
    number = whole_number(text, MAX_RATE)
    if number is None or number < minimum:
        raise UsageError(f"--trace-config {pair}: expected a whole number from {minimum} to {MAX_RATE}.")
    return number
