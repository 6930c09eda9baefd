"""A load's requests in turn as a list that repeats, in which a request's place decides what its client does."""

from collections.abc import Callable, Sequence

from perfkit.transport.base import Prepared, Reply

# the list repeats after so many requests, or more where there are more variants
_PERIOD = 1 << 14


class ListedRequests(list[Prepared]):
    """The requests of a load in turn; `items` has each distinct one once."""

    def __init__(self, listed: Sequence[Prepared], items: Sequence[Prepared]) -> None:
        super().__init__(listed)
        self.items = items

    @classmethod
    def repeated(cls, requests: Sequence[Prepared]) -> "ListedRequests":
        """The requests in turn, each equally often: that of place i is the i-th of the load, whatever the number of workers.

        Its variant is its place modulo the number of requests.
        """
        return cls([*requests] * -(-_PERIOD // len(requests)), requests)


def with_own_variant(on_reply: Callable[[Reply], None], variants: int) -> Callable[[Reply], None]:
    """Passes replies on with the variant of their request in place of its place in the list."""

    def take(reply: Reply) -> None:
        reply.variant %= variants
        on_reply(reply)

    return take
