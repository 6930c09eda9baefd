"""The server's log on stderr, as text or as one JSON object per line.

Triton's log settings apply: clients can turn levels off and request logging on.
"""

import asyncio
import datetime
import json
import re
import sys
import traceback
from collections.abc import Callable
from typing import Any

from server_stub.settings import Settings

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")  # in names from clients, which could otherwise forge log lines


def _utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _write(line: str) -> None:
    sys.stderr.write(line)
    sys.stderr.flush()


class Log:
    """The log, usable from any thread. `event` is for programs, `message` for people."""

    def __init__(
        self,
        settings: Settings,
        *,
        is_json: bool = False,
        write: Callable[[str], None] = _write,
        now: Callable[[], datetime.datetime] = _utc_now,
    ) -> None:
        self.settings, self._is_json, self._write, self._now = settings, is_json, write, now

    def info(self, event: str, message: str = "", **fields: object) -> None:
        """Log a normal event. Without a message it appears in JSON only."""
        if self.settings.log["log_info"] and (message or self._is_json):
            self._entry("info", event, message, fields)

    def warning(self, event: str, message: str, **fields: object) -> None:
        """Log a problem that the server has recovered from."""
        if self.settings.log["log_warning"]:
            self._entry("warning", event, message, fields)

    def internal_error(self, error: BaseException) -> None:
        """Log an error in the server itself, which failed one request, with its traceback."""
        if self.settings.log["log_error"]:
            text = "".join(traceback.format_exception(error))
            if self._is_json:
                self._entry("error", "fault", f"{type(error).__name__}: {error}", {"traceback": text})
            else:
                self._write(text)

    def handle_loop_exception(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """The event loop's exception handler."""
        self.internal_error(context.get("exception") or RuntimeError(context.get("message", "unknown error in the event loop")))

    @property
    def is_verbose(self) -> bool:
        """Whether requests are logged. Where each request passes, it is asked before `request`, which saves most of them a call."""
        return self.settings.is_verbose

    def request(self, protocol: str, request: str, status: str, duration_ns: int) -> None:
        """Log an answered request, if `log_verbose_level` is above 0."""
        if self.settings.is_verbose:
            fields = {"protocol": protocol, "request": request, "status": status, "duration_ns": duration_ns}
            self._entry("verbose", "request", f"{protocol} {request}: {status} in {duration_ns / 1e6:.3f} ms", fields)

    def _entry(self, level: str, event: str, message: str, fields: dict[str, object]) -> None:
        if self._is_json:
            document = {"time": self._now().isoformat(), "level": level, "event": event} | ({"message": message} if message else {})
            self._write(json.dumps({**document, **fields}, default=str) + "\n")
        else:
            self._write(_CONTROL.sub(lambda character: repr(character[0])[1:-1], message) + "\n")
