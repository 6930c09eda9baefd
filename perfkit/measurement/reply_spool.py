"""The replies of a run, for exports that list every request: which part of the worker's file belongs to which window."""

import contextlib
import dataclasses
import os
import pathlib
import tempfile
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from perfkit.clock import Clock, wall_ns
from perfkit.errors import UsageError
from perfkit.protocol.message import InferRequest, InferResponse
from perfkit.recorder.window import Window
from perfkit.scenario.load import ColdStartLoadSpec
from perfkit.scenario.model import Scenario
from perfkit.target_client import Client, make_client
from perfkit.transport.base import Outcome, Reply
from perfkit.transport.streamed_answer import StreamedAnswer
from perfkit.workers.messages import WorkerSpec, WorkloadSpec
from perfkit.workers.reply_file import read_replies


@dataclasses.dataclass(frozen=True, slots=True)
class SpooledRequest:
    """A request that was answered ok in a window; all instants are nanoseconds since 1970."""

    started_ns: int
    """When its bytes were sent."""
    sequence_id: int | str
    """0 for a request of no sequence."""
    variant: int
    """The index of the request among those of its load point."""
    request: InferRequest
    responses: tuple[tuple[int, InferResponse | None], ...]
    """When each response came, an empty final one of a stream included; None for a response whose transport does not keep its contents."""


@dataclasses.dataclass(slots=True)
class _Point:
    """A load point: its place in the file, what reads its answers, and its window."""

    spec: WorkloadSpec
    client: Client
    begin_bytes: int
    epoch_ns: int
    """What turns an instant of the clock into nanoseconds since 1970."""
    end_bytes: int = 0
    window_ns: tuple[int, int] | None = None


class ReplySpool:
    """The replies of one run's load points, each sent by one worker; a context manager, which removes their file at its end."""

    def __init__(self, folder: pathlib.Path) -> None:
        """The file is in `folder`; raises UsageError if that is not possible."""
        self._folder = folder
        try:
            descriptor, name = tempfile.mkstemp(prefix=".replies-", dir=folder)
        except OSError as error:
            raise UsageError(f"{folder}: no file can be made in this folder: {error.strerror}") from None
        os.close(descriptor)
        self._file = pathlib.Path(name)
        self._points: list[_Point] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with contextlib.suppress(OSError):
            self._file.unlink()

    def begin(self, spec: WorkerSpec, clock: Clock) -> WorkerSpec:
        """Begins a load point; returns what its worker must do so that replies have all that is spooled."""
        (own,) = spec.workloads
        if (stream := own.transport.stream) is not None:
            own = dataclasses.replace(
                own, transport=dataclasses.replace(own.transport, stream=dataclasses.replace(stream, keeps_messages=True))
            )
        # never opened: it only decodes
        client = make_client(own.address, own.transport, clock)
        self._points.append(_Point(own, client, self._file.stat().st_size, wall_ns() - clock.now_ns()))
        return dataclasses.replace(spec, workloads=(own,), replies_file=str(self._file.absolute()))

    def end(self, window: Window) -> None:
        """Ends a load point, whose requests are those answered in its window."""
        point = self._points[-1]
        point.end_bytes = self._file.stat().st_size
        point.window_ns = (window.start_ns, window.end_ns) if window.length_ns else None

    def windows_ns(self) -> list[tuple[int, int]]:
        """Start and end of the windows, in nanoseconds since 1970."""
        return [(start + one.epoch_ns, end + one.epoch_ns) for one in self._points if one.window_ns for start, end in (one.window_ns,)]

    def requests(self) -> Iterator[SpooledRequest]:
        """The requests whose last response came in a window, window by window; raises StorageError, and ProtocolError for a broken answer."""
        for point in self._points:
            if point.window_ns is not None:
                yield from self._requests_of(point, *point.window_ns)

    def _requests_of(self, point: _Point, start_ns: int, end_ns: int) -> Iterator[SpooledRequest]:
        epoch_ns, indices = point.epoch_ns, point.spec.request_indices
        for started_ns, finished_ns, variant, sequence_id, responses_ns, payload in read_replies(
            self._file, point.begin_bytes, point.end_bytes
        ):
            if not start_ns <= finished_ns <= end_ns:
                continue
            if indices is not None:
                variant = int(indices[variant])  # noqa: PLW2901 - that of the request, from here on
            responses = _responses(point.client, finished_ns, responses_ns, payload)
            yield SpooledRequest(
                started_ns + epoch_ns,
                sequence_id,
                variant,
                point.spec.requests[variant],
                tuple((at_ns + epoch_ns, response) for at_ns, response in responses),
            )


def _responses(client: Client, finished_ns: int, responses_ns: Sequence[int], payload: Any) -> Iterator[tuple[int, InferResponse | None]]:
    if payload is None:  # of a transport that keeps no contents, or a stream with nothing but its end
        yield from ((at_ns, None) for at_ns in responses_ns or (finished_ns,))
    elif responses_ns:
        for at_ns, message in payload:
            answer = StreamedAnswer()
            answer.first = message
            yield at_ns, client.decode(Reply(Outcome.OK, 0, 0, answer))
    else:
        yield finished_ns, client.decode(Reply(Outcome.OK, 0, 0, payload))


def check_spooled(scenario: Scenario) -> None:
    """Raises UsageError for a scenario whose replies cannot be spooled: of several workloads, of several workers, or a cold start."""
    if scenario.workloads is not None:
        raise UsageError("workloads: a profile export lists the requests of one workload; measure each with an export of its own")
    if isinstance(scenario.load, ColdStartLoadSpec):
        raise UsageError("load.cold_start: a profile export lists the requests of a window, which a cold start does not have")
    if scenario.measure.workers not in ("auto", 1):
        raise UsageError(f"measure.workers: a profile export needs 1, found {scenario.measure.workers}")
