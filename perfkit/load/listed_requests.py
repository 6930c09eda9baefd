"""The requests of a load as a list that repeats: from its place in the list follows whether a request is given up, and how it is sent again."""

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
