"""Prepared requests in the order of a trace, which sends some of them again and again."""

from collections.abc import Sequence
from typing import TypeVar, overload

from perfkit.trace.recorded import Order

_T = TypeVar("_T")


class InOrder(Sequence[_T]):
    """A sequence of some items, each in any number of places: item `order[i]` of `items` is in place i."""

    def __init__(self, items: Sequence[_T], order: Order) -> None:
        self._items = items
        self._order: list[int] = order.tolist()

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, place: int) -> _T: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[_T]: ...
    def __getitem__(self, place: int | slice) -> _T | Sequence[_T]:
        if isinstance(place, slice):
            return [self._items[index] for index in self._order[place]]
        return self._items[self._order[place]]
