"""The thread that records: whatever goes wrong in it is told at once, and ends the recording with an error."""

import json
import threading

import pytest

from perfkit.errors import StorageError
from perfkit.proxy.observer import CapturedRequest
from perfkit.proxy.trace_recorder import TraceRecorder
from perfkit.trace.writer import TraceWriter

REQUEST = CapturedRequest(1000, "infer", (json.dumps({"inputs": []}).encode(),), model="m")


class _FailingWriter(TraceWriter):
    """Fails in a way that no storage does, from the second batch on."""

    def __init__(self, file):
        super().__init__(file)
        self.batches = 0

    def write(self, rows):
        self.batches += 1
        if self.batches > 1:
            raise RuntimeError("dictionary changed size during iteration")
        super().write(rows)


def test_an_unexpected_error_in_the_thread_is_told_at_once_and_ends_the_recording(tmp_path):
    failures, has_failed = list[str](), threading.Event()

    def on_failure(text):
        failures.append(text)
        has_failed.set()

    writer = _FailingWriter(tmp_path / "trace.jsonl")
    recording = TraceRecorder(writer, "none", 0, on_failure)
    recording.add(REQUEST)
    while not recording.calls:  # the first batch
        threading.Event().wait(0.001)
    recording.add(REQUEST)
    has_failed.wait()
    recording.add(REQUEST)  # traffic goes on
    with pytest.raises(StorageError, match="dictionary changed size during iteration"):
        recording.close()
    assert failures == ["dictionary changed size during iteration"]
    assert recording.calls == {("m", "infer"): 1}
    assert len((tmp_path / "trace.jsonl").read_text().splitlines()) == 1
    assert writer.batches == 2
