"""Puts a call's messages together from its data; large ones are received into memory of their own."""

from collections.abc import Callable
from typing import NamedTuple

from perfkit.protocol.grpc_call import PREFIX_BYTES
from perfkit.protocol.tensor import Buffer

_FIRST_BYTES = 2**20
"""The memory reserved for a message whose length is only announced; the rest follows once so many bytes have arrived."""


class Message(NamedTuple):
    """A message as it was received: compressed or not."""

    data: Buffer
    is_compressed: bool


class MessageReader:
    """The messages of one call, of at most `max_bytes` each. `take` gives the memory of large ones."""

    def __init__(self, max_bytes: int, take: Callable[[int], memoryview]) -> None:
        self._max_bytes, self._take = max_bytes, take
        self._prefix = b""
        self._memory: memoryview | None = None  # of the message that has begun, all or the first part of it
        self._length = self._filled = 0
        self.refusal = ""
        """Why nothing more is read: a message announces more bytes than are accepted. Empty as long as none does."""

    @property
    def is_empty(self) -> bool:
        """Whether no message has begun."""
        return self._memory is None and not self._prefix

    def feed(self, data: Buffer) -> list[Message]:
        """The messages that further data complete. After a `refusal` there are no more."""
        position, end = 0, len(data)
        length = end - PREFIX_BYTES
        if self.is_empty and 0 <= length == int.from_bytes(data[1:PREFIX_BYTES]) <= self._max_bytes:  # one message, and all of it
            return [Message(bytes(data[PREFIX_BYTES:]), data[0] != 0)]
        messages = []
        while position < end:
            if self._memory is None:
                needed = PREFIX_BYTES - len(self._prefix)
                self._prefix += bytes(data[position : position + needed])
                position += needed
                if len(self._prefix) < PREFIX_BYTES:
                    break
                length = int.from_bytes(self._prefix[1:])
                if length > self._max_bytes:
                    self.refusal = (
                        f"SERVER: Received message larger than max ({length} vs. {self._max_bytes})"  # in the words of gRPC's core
                    )
                    break
                if length <= end - position:
                    messages.append(self._complete(bytes(data[position : position + length])))
                    position += length
                    continue
                self._memory, self._length, self._filled = self._take(min(length, _FIRST_BYTES)), length, 0
            taken = data[position : position + self._length - self._filled]
            self._reserve(self._filled + len(taken))
            self._memory[self._filled : self._filled + len(taken)] = taken
            position += len(taken)
            messages += self.advance(len(taken))
        return messages

    def space(self) -> memoryview | None:
        """Where the next bytes of the message that has begun belong; None if it has no memory yet."""
        if self._memory is None:
            return None
        self._reserve(self._filled + 1)
        return self._memory[self._filled :]

    def advance(self, byte_count: int) -> list[Message]:
        """Bytes have been written to `space`; the message, if that completes it."""
        assert self._memory is not None
        self._filled += byte_count
        return [self._complete(self._memory.toreadonly())] if self._filled == self._length else []

    def _complete(self, data: Buffer) -> Message:
        message = Message(data, self._prefix[0] != 0)
        self._memory, self._prefix = None, b""
        return message

    def _reserve(self, byte_count: int) -> None:
        """Has memory for the whole message once the first part of it does not suffice."""
        assert self._memory is not None
        if byte_count > len(self._memory):
            memory = self._take(self._length)
            memory[: self._filled] = self._memory[: self._filled]
            self._memory = memory
