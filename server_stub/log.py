"""What the server says on stderr: a sentence a line, or one JSON object a line.

Clients can switch kinds of lines off and requests on, as with Triton's log settings.
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

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")  # clients' names may have them, and must not look like other lines
TOLD = "what this means for the server is told elsewhere"
"""A note on an exception that needs no line of its own."""


def _utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _write(line: str) -> None:
    sys.stderr.write(line)
    sys.stderr.flush()


class Log:
    """The lines; `event` is the word by which programs know one, `sentence` what people read of it. For any thread."""

    def __init__(
        self,
        settings: Settings,
        *,
        is_json: bool = False,
        write: Callable[[str], None] = _write,
        now: Callable[[], datetime.datetime] = _utc_now,
    ) -> None:
        self._settings, self._is_json, self._write, self._now = settings, is_json, write, now

    def info(self, event: str, sentence: str = "", **fields: object) -> None:
        """What happened as it should; without a sentence people see it anyway, and only programs are told."""
        if self._settings.log["log_info"] and (sentence or self._is_json):
            self._line("info", event, sentence, fields)

    def warning(self, event: str, sentence: str, **fields: object) -> None:
        """What was mended, and should not have been needed."""
        if self._settings.log["log_warning"]:
            self._line("warning", event, sentence, fields)

    def fault(self, error: BaseException) -> None:
        """A fault of the server's own, which cost one request."""
        if self._settings.log["log_error"]:
            text = "".join(traceback.format_exception(error))
            if self._is_json:
                self._line("error", "fault", f"{type(error).__name__}: {error}", {"traceback": text})
            else:
                self._write(text)

    def loop_fault(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An event loop's exception handler."""
        error = context.get("exception")
        if error is None:
            self.fault(RuntimeError(context.get("message", "the event loop met an error")))
        elif TOLD not in getattr(error, "__notes__", ()):
            self.fault(error)

    def request(self, protocol: str, what: str, status: str, duration_ns: int) -> None:
        """A request that was answered; only where `log_verbose_level` asks for it."""
        if self._settings.is_verbose:
            sentence = f"{protocol} {what}: {status} in {duration_ns / 1e6:.3f} ms"
            self._line(
                "verbose", "request", sentence, {"protocol": protocol, "request": what, "status": status, "duration_ns": duration_ns}
            )

    def _line(self, level: str, event: str, sentence: str, fields: dict[str, object]) -> None:
        if self._is_json:
            document = {
                "time": self._now().isoformat(),
                "level": level,
                "event": event,
                **({"message": sentence} if sentence else {}),
                **fields,
            }
            self._write(json.dumps(document, default=str) + "\n")
        else:
            self._write(_CONTROL.sub(lambda found: repr(found[0])[1:-1], sentence) + "\n")
