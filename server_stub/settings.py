"""Server metadata, and trace and log settings with Triton's rules. Log settings take effect; traces are never written."""

import importlib.metadata
from collections.abc import Callable, Mapping
from typing import Any

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol.message import ServerMetadata

_NAME = "triton"  # tritonclient's examples require this name
_EXTENSIONS = (
    "classification", "sequence", "model_repository", "model_repository(unload_dependents)", "schedule_policy", "model_configuration",
    "system_shared_memory", "binary_tensor_data", "parameters", "statistics", "trace", "logging",
)  # fmt: skip


def server_metadata(*, is_shared_memory_allowed: bool) -> ServerMetadata:
    """The server's name, version and protocol extensions."""
    extensions = tuple(extension for extension in _EXTENSIONS if is_shared_memory_allowed or extension != "system_shared_memory")
    return ServerMetadata(_NAME, importlib.metadata.version("perfkit"), extensions)


_TRACE: dict[str, Any] = {
    "trace_level": ["OFF"], "trace_rate": "1000", "trace_count": "-1", "log_frequency": "0", "trace_file": "", "trace_mode": "triton",
}  # fmt: skip
_MINIMUM = {"trace_rate": 1, "trace_count": -1, "log_frequency": 0}
_LOG: dict[str, Any] = {
    "log_file": "", "log_info": True, "log_warning": True, "log_error": True, "log_verbose_level": 0, "log_format": "default",
}  # fmt: skip


class Settings:
    """The server's log and trace settings. A model's trace settings override the server's."""

    def __init__(self) -> None:
        self._trace: dict[str, dict[str, Any]] = {"": dict(_TRACE)}
        self._log = dict(_LOG)
        self.is_verbose = False
        """Whether requests are logged."""

    def trace(self, model: str = "") -> dict[str, Any]:
        """A model's trace settings, or the server's."""
        return {**self._trace[""], **self._trace.get(model, {})}

    def set_trace(self, model: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Change settings; None resets one to its default. Unknown keys are ignored. Raises ProtocolError with Triton's messages."""
        new = dict(self._trace.get(model, {}))
        for key, value in given.items():
            if key == "trace_file":
                raise ProtocolError("trace file location can not be updated through network protocol", ErrorKind.UNSUPPORTED)
            if value is None and key in _TRACE:
                new.pop(key, None)
            elif key == "trace_level":
                new[key] = _levels(value)
            elif key in _MINIMUM:
                new[key] = _number(key, value)
        self._trace[model] = {**_TRACE, **new} if not model else new
        return self.trace(model)

    @property
    def log(self) -> dict[str, Any]:
        """The log settings."""
        return dict(self._log)

    def set_log(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Change settings. Unknown keys are ignored. Raises ProtocolError with Triton's messages."""
        new = {}
        for key, value in given.items():
            if key == "log_file":
                raise ProtocolError("log file location can not be updated through network protocol", ErrorKind.UNSUPPORTED)
            if key in _LOG:
                new[key] = _LOG_READERS[type(_LOG[key])](value)
                if key == "log_verbose_level" and new[key] >= 2**32:
                    raise ProtocolError("attempt to access JSON non-unsigned-integer as unsigned-integer", ErrorKind.INTERNAL)
                if key == "log_format" and value not in ("default", "ISO8601"):
                    raise ProtocolError(f"invalid argument for --log_format, got: {value}", ErrorKind.UNAVAILABLE)
        self._log.update(new)
        self.is_verbose = self._log["log_verbose_level"] > 0
        return self.log


def _levels(value: object) -> list[str]:
    if not isinstance(value, list):
        raise ProtocolError("attempt to access JSON non-array as array", ErrorKind.INTERNAL)
    levels = [read_text(level) for level in value]
    if any(level in ("TIMESTAMPS", "TENSORS") for level in levels):
        raise ProtocolError("Attempting to set invalid trace setting :trace file name is not given")
    return ["OFF"]


def _number(key: str, value: object) -> str:
    text = read_text(value)
    try:
        number = int(text)
    except ValueError:
        raise ProtocolError(f"Unable to parse '{key}', got: {text}") from None
    if number < _MINIMUM[key]:
        raise ProtocolError(f"Unable to parse '{key}'. Expecting value >= {_MINIMUM[key]}, got:{text}")
    return str(number)


def read_text(value: object) -> str:
    """A JSON value that must be a string. Raises ProtocolError with Triton's message, as `read_unsigned` does."""
    if not isinstance(value, str):
        raise ProtocolError("attempt to access JSON non-string as string", ErrorKind.INTERNAL)
    return value


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise ProtocolError("attempt to access JSON non-boolean as boolean", ErrorKind.INTERNAL)
    return value


def read_unsigned(value: object) -> int:
    """A JSON value that must be a whole number from 0 on."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ProtocolError("attempt to access JSON non-unsigned-integer as unsigned-integer", ErrorKind.INTERNAL)
    return value


_LOG_READERS: Mapping[type, Callable[[object], Any]] = {str: read_text, bool: _boolean, int: read_unsigned}
