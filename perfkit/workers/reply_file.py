"""The replies of a load point in a file, for exports that list every request; written only then.

While load is sent, an answer is only written as it came: it is decoded when the file is read, after the load.
"""

import pathlib
import pickle
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from perfkit.errors import StorageError
from perfkit.transport.base import Outcome, Reply
from perfkit.transport.streamed_answer import StreamedAnswer

_BUFFER_BYTES = 1 << 20


class ReplyRow(NamedTuple):
    """A reply that was ok; `payload` is what its transport decodes."""

    started_ns: int
    finished_ns: int
    variant: int
    sequence_id: int | str
    responses_ns: Sequence[int]
    payload: Any


class ReplyFile:
    """Adds replies to the end of a file; a context manager. Raises StorageError if it cannot be written."""

    def __init__(self, path: pathlib.Path) -> None:
        self._folder = path.parent
        try:
            self._file = path.open("ab", buffering=_BUFFER_BYTES)
        except OSError as error:
            raise self._failure(error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._file.close()
        except OSError as failure:
            if error is None:
                raise self._failure(failure) from None

    def take(self, reply: Reply) -> None:
        """Takes a reply, before its contents are dropped."""
        if reply.outcome is not Outcome.OK:
            return
        payload = reply.payload.messages if isinstance(reply.payload, StreamedAnswer) else reply.payload
        row = ReplyRow(reply.started_ns, reply.finished_ns, reply.variant, reply.sequence_id, reply.responses_ns, payload)
        try:
            self._file.write(pickle.dumps(tuple(row)))
        except OSError as error:
            raise self._failure(error) from None

    def _failure(self, error: OSError) -> StorageError:
        return StorageError(f"{self._folder}: the requests cannot be written: {error.strerror}")


def read_replies(path: pathlib.Path, begin_bytes: int, end_bytes: int) -> Iterator[ReplyRow]:
    """The replies in a part of a file that this perfkit's own workers have written; raises StorageError."""
    try:
        with path.open("rb", buffering=_BUFFER_BYTES) as file:
            file.seek(begin_bytes)
            while file.tell() < end_bytes:
                try:
                    row = ReplyRow(*pickle.load(file))  # noqa: S301 - a file of this run, in a folder of its own user
                except (EOFError, pickle.UnpicklingError):  # the last row of a worker that was killed, after what counts of it
                    return
                yield row
    except OSError as error:
        raise StorageError(f"{path.parent}: the requests cannot be read: {error.strerror}") from None
