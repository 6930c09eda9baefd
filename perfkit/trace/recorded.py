"""A trace in memory: the instants of its requests, and what each of them carried."""

import dataclasses
from array import array
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from perfkit.units import NS_PER_S

Instants: TypeAlias = npt.NDArray[np.int64]
Indices: TypeAlias = npt.NDArray[np.int32]
MAX_INSTANT_NS = 10**18
"""About 30 years: later instants would not fit 64 bits once an origin is added."""


class Content(NamedTuple):
    """What a request carried, as far as the trace says it; all empty for a trace of instants alone."""

    payload: str = ""
    """The name of a file in the trace's folder of payloads, a digest of what is in it."""
    shapes: str = ""
    """A JSON object with the shape of each input."""
    request: str = ""
    """The request itself, as the JSON document of a v2 infer request."""
    tensors: str = ""
    """A JSON object with the tensors in the form of perf_analyzer's input data."""
    lengths: str = ""
    """The tokens of a language model's prompt and of its answer: `374,44`."""


@dataclasses.dataclass(frozen=True, eq=False)
class RecordedTrace:
    """The requests of a trace by their instants, in nanoseconds from the start of the load."""

    instants_ns: Instants
    """In ascending order."""
    content_indices: Indices
    """For each request the index of what it carried in `contents`."""
    contents: Sequence[Content]
    """The distinct contents."""
    period_ns: int
    """The time after which a trace that is sent again and again begins anew."""
    requests_by_model: Mapping[str, int]
    """The number of requests for each model, by name; the name is empty where the trace gives none."""

    @property
    def span_ns(self) -> int:
        """The instant of the last request."""
        return int(self.instants_ns[-1]) if self.instants_ns.size else 0

    @property
    def has_contents(self) -> bool:
        """Whether it says what any request carried."""
        return any(any(content._replace(lengths="")) for content in self.contents)

    @property
    def has_lengths(self) -> bool:
        """Whether it says how long the prompts and the answers were."""
        return all(content.lengths for content in self.contents)


class TraceBuilder:
    """Collects the requests of a trace one by one, in a few bytes for each."""

    def __init__(self) -> None:
        self._times_ns, self._contents, self._models = array("q"), array("i"), array("i")
        self._content_index: dict[Content, int] = {}
        self._model_index: dict[str, int] = {}

    def add(self, time_ns: int, model: str, content: Content) -> None:
        """Adds a request; raises OverflowError if the time does not fit 64 bits."""
        self._times_ns.append(time_ns)
        self._contents.append(self._content_index.setdefault(content, len(self._content_index)))
        self._models.append(self._model_index.setdefault(model, len(self._model_index)))

    def __len__(self) -> int:
        return len(self._times_ns)

    def build(self, *, start_ns: int | None = None, period_ns: int | None = None, model: str = "") -> RecordedTrace:
        """The requests in the order of their times.

        The load starts at `start_ns`, by default at the first request. `period_ns` is by default the time from the first request to the
        last one and a mean gap more. With `model` only the requests for that model are left, at the same instants.
        """
        times_ns, contents = np.array(self._times_ns, dtype=np.int64), np.array(self._contents, dtype=np.int32)
        models = np.array(self._models, dtype=np.int32)
        counts = np.bincount(models, minlength=len(self._model_index)).tolist()
        by_time = np.argsort(times_ns, kind="stable")
        instants_ns = times_ns[by_time]
        instants_ns -= (int(instants_ns[0]) if instants_ns.size else 0) if start_ns is None else start_ns
        if period_ns is None:
            last_ns = int(instants_ns[-1]) if instants_ns.size else 0
            period_ns = last_ns + last_ns // (instants_ns.size - 1) if last_ns and instants_ns.size > 1 else last_ns + NS_PER_S
        if model:
            chosen = models[by_time] == self._model_index.get(model, -1)
            by_time, instants_ns = by_time[chosen], instants_ns[chosen]
        return RecordedTrace(
            instants_ns, contents[by_time], tuple(self._content_index), period_ns, dict(zip(self._model_index, counts, strict=True))
        )
