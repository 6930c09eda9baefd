"""Reads perf_analyzer's profile exports request by request, since they may be larger than memory, and finds their measured time.

The list of boundaries of an export's load point does not say which spans are windows.
"""

import dataclasses
import itertools
import json
import pathlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from perfkit.errors import ResultError
from perfkit.result.checks import HIGHEST_RATE_PER_S
from perfkit.stats.buckets import LONGEST_TIME_NS
from perfkit.units import NS_PER_S, format_duration_ns, format_rate_per_s

_CHUNK_CHARACTERS = 1 << 20
_LARGEST_VALUE_CHARACTERS = 256 * 2**20
_HIGHEST_INSTANT_NS = 7_258_118_400 * NS_PER_S  # the year 2200
_NOT_BOUNDED = [0, 2**64 - 1]
"""The window's boundaries of periodic and session loads, which have none."""


@dataclasses.dataclass(slots=True)
class Experiment:
    """One load value of an export: the instants of its requests, in nanoseconds since 1970."""

    mode: str = ""
    value: float = 0.0
    started_ns: "array[int]" = dataclasses.field(default_factory=lambda: array("q"))
    first_ns: "array[int]" = dataclasses.field(default_factory=lambda: array("q"))
    """The first response of each request."""
    last_ns: "array[int]" = dataclasses.field(default_factory=lambda: array("q"))
    gaps_ns: "array[int]" = dataclasses.field(default_factory=lambda: array("q"))
    """Between consecutive responses of one request."""
    boundaries_ns: tuple[int, ...] = ()
    """The boundaries of the windows; empty if they have no bounds."""
    unanswered: int = 0
    """Requests without any response, which are left out."""


def read_export(file: pathlib.Path) -> tuple[list[Experiment], str]:
    """The experiments of an export, and the version of perf_analyzer; raises ResultError."""
    experiments, version = list[Experiment](), ""
    try:
        with file.open(encoding="utf-8", errors="replace") as stream:  # strings of tensors may be any bytes
            reader = _JsonReader(stream)
            for key in reader.object_keys():
                if key == "experiments":
                    experiments = [_experiment(reader, number) for number in reader.elements()]
                elif (value := reader.value()) is not None and key == "version":
                    version = str(value)[:100]
    except OSError as error:
        raise ResultError(f"{file}: cannot be read: {error.strerror}") from None
    except _FormatError as error:
        raise ResultError(f"{file}: this is no whole profile export of perf_analyzer: {error}") from None
    if not experiments:
        raise ResultError(f"{file}: this profile export has no experiment")
    return experiments, version


class _FormatError(Exception):
    """What is wrong in an export, as the end of a sentence."""


def _experiment(reader: "_JsonReader", number: int) -> Experiment:
    made, place = Experiment(), f"experiments.{number}"
    for key in reader.object_keys():
        if key == "requests":
            for index in reader.elements():
                _add_request(made, reader.value(), f"{place}.requests.{index}")
            continue
        value = reader.value()
        if key == "experiment":
            made.mode, made.value = _load(value, f"{place}.experiment")
        elif key == "window_boundaries" and value != _NOT_BOUNDED:
            made.boundaries_ns = _instants(value, f"{place}.window_boundaries")
            if list(made.boundaries_ns) != sorted(made.boundaries_ns):
                raise _FormatError(f"{place}.window_boundaries: expected instants in their order")
    if not made.mode:
        raise _FormatError(f"{place}.experiment: expected mode and value")
    return made


def _load(found: Any, place: str) -> tuple[str, float]:
    mode, value = (found.get("mode"), found.get("value")) if isinstance(found, dict) else ("", None)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if mode not in ("concurrency", "request_rate") or value is None or not is_number or not 0 <= value <= HIGHEST_RATE_PER_S:
        raise _FormatError(f"{place}: expected mode concurrency or request_rate and a value of at least 0, found {str(found)[:100]}")
    return mode, float(value)


def _add_request(made: Experiment, found: Any, place: str) -> None:
    if not isinstance(found, dict):
        raise _FormatError(f"{place}: expected an object")
    (started_ns,) = _instants([found.get("timestamp")], f"{place}.timestamp")
    responses_ns = _instants(found.get("response_timestamps"), f"{place}.response_timestamps")
    if not responses_ns:
        made.unanswered += 1
        return
    if list(responses_ns) != sorted(responses_ns) or responses_ns[0] < started_ns:
        raise _FormatError(f"{place}.response_timestamps: expected instants in their order, after the request's timestamp")
    if responses_ns[-1] - started_ns > LONGEST_TIME_NS:
        raise _FormatError(f"{place}: it lasts longer than an hour")
    if _ends_empty(found.get("response_outputs")):
        responses_ns = responses_ns[:-1]
    made.started_ns.append(started_ns)
    made.first_ns.append(responses_ns[0])
    made.last_ns.append(responses_ns[-1])
    made.gaps_ns.extend(later - earlier for earlier, later in itertools.pairwise(responses_ns))


def _ends_empty(outputs: Any) -> bool:
    """Whether the last of several responses is the empty one with which a decoupled model ends; tensors in shared memory are all empty."""
    if not isinstance(outputs, list) or len(outputs) < 2:
        return False
    *others, last = ([*one.values()] if isinstance(one, dict) else [None] for one in outputs)
    return all(value == "" for value in last) and any(value != "" for one in others for value in one)


def _instants(found: Any, place: str) -> tuple[int, ...]:
    if not isinstance(found, list) or not all(type(one) is int and 0 <= one <= _HIGHEST_INSTANT_NS for one in found):
        raise _FormatError(f"{place}: expected nanoseconds since 1970, found {str(found)[:100]}")
    return tuple(found)


class _JsonReader:
    """Takes a JSON document apart from its start, so that only one value is in memory at a time."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._buffer, self._at, self._is_whole = "", 0, False
        self._decode: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().raw_decode

    def object_keys(self) -> Iterator[str]:
        """The keys of the object that comes next; the caller takes the value of each."""
        for _ in self._members("{", "}"):
            key = self.value()
            self._expect(":")
            yield str(key)

    def elements(self) -> Iterator[int]:
        """The indices of the list that comes next; the caller takes the value of each."""
        yield from self._members("[", "]")

    def value(self) -> Any:
        """The value that comes next."""
        self._next()
        while True:
            try:
                value, end = self._decode(self._buffer, self._at)
            except (ValueError, RecursionError) as error:
                if self._is_whole or isinstance(error, RecursionError):
                    raise _FormatError("it ends early, or has a value that is no JSON") from None
            else:
                if end < len(self._buffer) or self._is_whole:  # a number may go on
                    self._at = end
                    return value
            self._read()

    def _members(self, begin: str, end: str) -> Iterator[int]:
        self._expect(begin)
        if self._next() == end:
            self._at += 1
            return
        number = 0
        while True:
            yield number
            number += 1
            if self._next() == end:
                self._at += 1
                return
            self._expect(",")

    def _expect(self, character: str) -> None:
        if (found := self._next()) != character:
            raise _FormatError(f"expected '{character}', found {repr(found) if found else 'its end'}")
        self._at += 1

    def _next(self) -> str:
        """The next character that is not blank; empty at the end."""
        while True:
            while self._at < len(self._buffer):
                if not (character := self._buffer[self._at]).isspace():
                    return character
                self._at += 1
            if self._is_whole:
                return ""
            self._read()

    def _read(self) -> None:
        rest = self._buffer[self._at :]
        if len(rest) > _LARGEST_VALUE_CHARACTERS:
            raise _FormatError(f"one value is longer than {_LARGEST_VALUE_CHARACTERS // 2**20} MiB")
        added = self._stream.read(max(_CHUNK_CHARACTERS, len(rest)))  # doubled, so that a long value is not decoded too often
        self._buffer, self._at, self._is_whole = rest + added, 0, not added


_Instants = npt.NDArray[np.int64]
_IDLE_SHARE, _IDLE_REQUESTS = 0.05, 3


@dataclasses.dataclass(frozen=True, slots=True)
class Windows:
    """Spans that do not overlap, in their order; windows that touch are one span."""

    starts_ns: _Instants
    ends_ns: _Instants
    note: str = ""
    """What was left out, as the end of a sentence; empty for nothing."""

    @property
    def length_ns(self) -> int:
        """The length of all spans together."""
        return int((self.ends_ns - self.starts_ns).sum())

    def count_inside(self, instants_ns: _Instants) -> int:
        """How many instants lie in a span."""
        span = np.searchsorted(self.starts_ns, instants_ns, side="right") - 1
        return int(((span >= 0) & (instants_ns <= self.ends_ns[span])).sum())

    def positions_ns(self, instants_ns: _Instants) -> _Instants:
        """The measured time before each instant."""
        lengths_ns = self.ends_ns - self.starts_ns
        span = np.maximum(np.searchsorted(self.starts_ns, instants_ns, side="right") - 1, 0)
        before_ns = np.cumsum(lengths_ns) - lengths_ns
        positions_ns: _Instants = before_ns[span] + np.clip(instants_ns - self.starts_ns[span], 0, lengths_ns[span])
        return positions_ns


def measured_windows(boundaries_ns: Sequence[int], started_ns: _Instants, last_ns: _Instants) -> Windows:
    """The windows of requests that began and were answered then; without usable boundaries one from the first request to the last response.

    Two kinds of time in which nothing was measured are left out. With `--request-count` perf_analyzer's only window ends up to a second
    after the last response, when it comes to look. And where windows do not touch, a start is listed between two ends: every second span is
    such a gap if no request was in flight in any of them, although three or more would have been expected.
    """
    latest_ns = int(last_ns.max())
    if len(boundaries_ns) < 2 or boundaries_ns[0] >= min(boundaries_ns[-1], latest_ns):
        earliest_ns = int(started_ns.min())
        return _one(earliest_ns, max(latest_ns, earliest_ns + 1))
    start_ns, end_ns = boundaries_ns[0], boundaries_ns[-1]
    if len(boundaries_ns) == 2:
        idle_ns, apart_ns = end_ns - latest_ns, (latest_ns - int(last_ns.min())) / max(last_ns.size - 1, 1)
        if idle_ns > max(_IDLE_SHARE * (end_ns - start_ns), _IDLE_REQUESTS * apart_ns):
            told, idle = format_rate_per_s(last_ns.size * NS_PER_S / (end_ns - start_ns)), format_duration_ns(idle_ns)
            note = f"the throughput is that until the last response: perf_analyzer's window goes on for {idle} after it, as with --request-count"
            return _one(start_ns, latest_ns, f"{note}, so that it reported {told}")
    elif len(boundaries_ns) % 2 == 0:
        edges_ns = np.array(boundaries_ns, dtype=np.int64)
        apart = Windows(edges_ns[::2], edges_ns[1::2])
        gaps_ns = apart.starts_ns[1:] - apart.ends_ns[:-1]
        expected = last_ns.size * int(gaps_ns.sum()) / max(apart.length_ns, 1)
        # a request in flight in a gap began before its end and ended after its start
        begun = np.searchsorted(np.sort(started_ns), apart.starts_ns[1:])
        answered = np.searchsorted(np.sort(last_ns), apart.ends_ns[:-1], side="right")
        if apart.length_ns and expected >= _IDLE_REQUESTS and bool((begun == answered).all()):
            idle = format_duration_ns(int(gaps_ns.sum()))
            return dataclasses.replace(apart, note=f"the windows do not touch, and the {idle} between them are left out")
    return _one(start_ns, end_ns)


def _one(start_ns: int, end_ns: int, note: str = "") -> Windows:
    return Windows(np.array([start_ns], dtype=np.int64), np.array([end_ns], dtype=np.int64), note)
