"""Writes traces to files as Triton's mode `triton` does: a JSON array of entries that belong together by their `id`."""

import json
from typing import IO

from perfkit.errors import UsageError
from perfkit.override import override
from server_stub.tracing.request_trace import RequestTrace
from server_stub.tracing.trace_settings import TraceSettings
from server_stub.tracing.tracer import Exporter


class TraceFile(Exporter):
    """One file until the end, or a new one, FILE.0, FILE.1 …, after each `log_frequency` traces. Times are monotonic nanoseconds."""

    def __init__(self, settings: TraceSettings) -> None:
        """Raises UsageError if the file cannot be written."""
        config = settings.config
        assert config.file is not None, "without a file there is nothing to write to"
        self._settings, self._path = settings, config.file
        self._file: IO[str] | None = None
        self._in_file = self._files = 0
        try:
            self._path.write_bytes(b"")
        except OSError as error:
            raise UsageError(f"--trace-config triton,file={self._path} cannot be written: {error.strerror}.") from None

    @override
    def add(self, trace: RequestTrace) -> None:
        frequency = self._settings.sampler(trace.model).config.log_frequency
        if self._file is None:
            path = self._path.with_name(f"{self._path.name}.{self._files}") if frequency else self._path
            self._file, self._in_file, self._files = path.open("w", encoding="utf-8"), 0, self._files + bool(frequency)
        entries = [json.dumps(entry, separators=(",", ":")) for entry in _entries(trace)]
        self._file.write(("," if self._in_file else "[") + ",".join(entries))
        self._in_file += 1
        if frequency and self._in_file >= frequency:
            self.close()

    @override
    def close(self) -> None:
        if self._file is not None:
            self._file.write("]")
            self._file.close()
            self._file = None


def _entries(trace: RequestTrace) -> list[dict[str, object]]:
    entries: list[dict[str, object]] = [{"id": trace.number, "timestamps": [{"name": name, "ns": ns} for name, ns in trace.events()]}]
    if trace.model:
        about = {"id": trace.number, "model_name": trace.model, "model_version": int(trace.version)}
        entries.append({**about, **({"request_id": trace.request_id} if trace.request_id else {})})
    return entries
