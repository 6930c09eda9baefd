"""Log settings with Triton's rules, and how JSON values of settings are read."""

from collections.abc import Callable, Mapping
from typing import Any

from perfkit.errors import ErrorKind, ProtocolError

_LOG: dict[str, Any] = {
    "log_file": "", "log_info": True, "log_warning": True, "log_error": True, "log_verbose_level": 0, "log_format": "default",
}  # fmt: skip


class Settings:
    """The server's log settings."""

    def __init__(self) -> None:
        self._log = dict(_LOG)
        self.is_verbose = False
        """Whether requests are logged."""

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
