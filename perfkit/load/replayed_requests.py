"""The requests of a replay in the order of its trace, in which a request may occur many times."""

from collections.abc import Sequence
from typing import TypeVar, overload

from perfkit.trace.recorded import Indices

_T = TypeVar("_T")


class ReplayedRequests(Sequence[_T]):
    """A sequence that stores each distinct item once: its i-th item is `items[indices[i]]`."""

    def __init__(self, items: Sequence[_T], indices: Indices) -> None:
        self._items = items
        self._indices: list[int] = indices.tolist()

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, place: int) -> _T: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[_T]: ...
    def __getitem__(self, place: int | slice) -> _T | Sequence[_T]:
        if isinstance(place, slice):
            return [self._items[index] for index in self._indices[place]]
        return self._items[self._indices[place]]
