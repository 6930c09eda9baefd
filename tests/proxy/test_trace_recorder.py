"""The thread that records: whatever goes wrong in it is told at once, and ends the recording with an error."""

import json
import threading

from perfkit.clock import MonotonicClock
from perfkit.proxy.open_requests import BodyMemory, OpenRequest
from perfkit.proxy.trace_recorder import TraceRecorder
from perfkit.trace.writer import TraceWriter


def request():
    return OpenRequest(1000, "infer", model="m", body=bytearray(json.dumps({"inputs": []}).encode()))


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
    recording = TraceRecorder(writer, "none", 0, BodyMemory(), MonotonicClock(), on_failure)
    recording.add(request())
    while not recording.calls:  # the first batch
        threading.Event().wait(0.001)
    recording.add(request())
    has_failed.wait()
    recording.add(request())  # traffic goes on
    recording.close()
    assert failures == [recording.failure] == ["dictionary changed size during iteration"]
    assert recording.unwritten == 2
    assert recording.calls == {("m", "infer"): 1}
    assert len((tmp_path / "trace.jsonl").read_text().splitlines()) == 1
    assert writer.batches == 2
