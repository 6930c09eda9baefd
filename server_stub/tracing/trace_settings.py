"""The v2 trace settings, of the server and of models, with Triton's rules and messages, and the sampling of requests by them."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from perfkit.digits import whole_number
from perfkit.errors import ErrorKind, ProtocolError
from server_stub.settings import read_text
from server_stub.tracing.trace_config import LEVELS, TraceConfig

_MINIMUM = {"trace_rate": 0, "trace_count": -1, "log_frequency": 0}
_FIELDS = {"trace_level": "level", "trace_rate": "rate", "trace_count": "count", "log_frequency": "log_frequency"}
_UPDATE_ERROR = "Attempting to set invalid trace setting :"


@dataclasses.dataclass(slots=True)
class Sampler:
    """Decides which requests are traced by one setting: the server's or a model's."""

    config: TraceConfig
    left: int = dataclasses.field(init=False)
    """How many requests the rate may still choose; negative is no limit."""
    _seen: int = dataclasses.field(init=False, default=0)

    def __post_init__(self) -> None:
        self.left = self.config.count

    def sample(self, *, is_forced: bool) -> bool:
        """Whether to trace this request. One that is forced, by its `traceparent`, counts for the rate, but not as one of `count`."""
        if not self.config.level:
            return False
        self._seen += 1
        is_chosen = self._seen % self.config.rate == 0
        if is_forced or not is_chosen or not self.left:
            return is_forced
        self.left -= 1
        return True


class TraceSettings:
    """The trace settings. A model's settings override the server's, field by field."""

    def __init__(self, config: TraceConfig) -> None:
        self.config = config
        """How the server was started."""
        self._changes: dict[str, dict[str, Any]] = {"": {}}
        self._samplers: dict[str, Sampler] = {"": Sampler(config)}
        self.is_on = bool(config.level)
        """Whether any request can be traced."""

    def sampler(self, model: str) -> Sampler:
        """What decides for the requests of a model."""
        return self._samplers.get(model) or self._samplers[""]

    def document(self, model: str = "") -> dict[str, Any]:
        """A model's settings, or the server's, as clients see them."""
        sampler = self.sampler(model)
        config = sampler.config
        document: dict[str, Any] = {
            "trace_level": list(config.level) or ["OFF"], "trace_rate": str(config.rate), "trace_count": str(max(-1, sampler.left)),
        }  # fmt: skip
        if config.mode == "triton":
            file = "" if config.file is None else str(config.file)
            return {**document, "log_frequency": str(config.log_frequency), "trace_file": file, "trace_mode": config.mode}
        sizes = {
            "bsp_schedule_delay": config.delay_ms, "bsp_max_export_batch_size": config.max_batch, "bsp_max_queue_size": config.max_waiting,
        }  # fmt: skip
        return {**document, "trace_mode": config.mode, "url": config.url} | {key: str(size) for key, size in sizes.items()}

    def update(self, model: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Change settings; None resets one to its default. Unknown keys are ignored. Raises ProtocolError with Triton's messages."""
        changes = dict(self._changes.get(model, {}))
        for key, value in given.items():
            if key == "trace_file":
                raise ProtocolError("trace file location can not be updated through network protocol", ErrorKind.UNSUPPORTED)
            if value is None:
                changes.pop(_FIELDS.get(key, ""), None)
            elif key == "trace_level":
                if (level := _levels(value)) is not None:
                    changes["level"] = level
            elif key in _MINIMUM:
                changes[_FIELDS[key]] = _number(key, value)
        if given:
            self._replace({**self._changes, model: changes})
        return self.document(model)

    def _replace(self, changes: dict[str, dict[str, Any]]) -> None:
        """Make new samplers, which count anew, unless the settings are invalid."""
        shared = dataclasses.replace(self.config, **changes[""])
        configs = {model: dataclasses.replace(shared, **own) for model, own in changes.items() if own or not model}
        for config in configs.values():
            _check(config)
        self._changes = changes
        self._samplers = {model: Sampler(config) for model, config in configs.items()}
        self.is_on = any(config.level for config in configs.values())


def _check(config: TraceConfig) -> None:
    """Raises ProtocolError for settings by which nothing can be traced."""
    if config.level and not config.is_possible:
        raise ProtocolError(f"{_UPDATE_ERROR}trace file name is not given")
    if not config.rate:
        raise ProtocolError(f"{_UPDATE_ERROR}sample rate must be non-zero")
    if config.level and not config.count:
        raise ProtocolError(_UPDATE_ERROR)


def _levels(value: object) -> tuple[str, ...] | None:
    """None if there is no known level, which changes nothing."""
    if not isinstance(value, list):
        raise ProtocolError("attempt to access JSON non-array as array", ErrorKind.INTERNAL)
    levels = [read_text(level) for level in value]
    if "OFF" in levels:
        if len(levels) > 1:
            raise ProtocolError("Expect only one trace level 'OFF' is specified")
        return ()
    return tuple(level for level in LEVELS if level in levels) or None


def _number(key: str, value: object) -> int:
    text = read_text(value)
    number = whole_number(text.removeprefix("-"))
    if number is None:
        raise ProtocolError(f"Unable to parse '{key}', got: {text}")
    if text.startswith("-"):
        number = -number
    if number < _MINIMUM[key]:
        raise ProtocolError(f"Unable to parse '{key}'. Expecting value >= {_MINIMUM[key]}, got:{text}")
    return number
