"""The requests of sequences: ids and flags in bytes that were prepared once, so that a step costs little more than a plain request."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from perfkit.load.sequences import LiveSequence
from perfkit.override import override
from perfkit.protocol.message import InferRequest
from perfkit.transport.base import Prepared

_Encode: TypeAlias = Callable[[int | str], bytes]


def with_sequence(request: InferRequest, sequence_id: int | str, *, starts: bool, ends: bool) -> InferRequest:
    """The request as a step of a sequence."""
    step = {"sequence_id": sequence_id, "sequence_start": starts, "sequence_end": ends}
    return dataclasses.replace(request, parameters={**request.parameters, **step})


@dataclasses.dataclass(frozen=True, slots=True)
class _Template:
    """A prepared step, cut where the id lies: in one of its buffers."""

    before: Sequence[bytes]
    start: bytes
    end: bytes
    after: Sequence[bytes]
    headers: Mapping[str, str]

    def fill(self, encoded_id: bytes) -> Prepared:
        """The step of another sequence whose id has the same width; only the buffer with the id is copied."""
        return Prepared((*self.before, b"".join((self.start, encoded_id, self.end)), *self.after), self.headers)


class SequenceRequests:
    """The steps of sequences over the `requests`: step k of each sequence is request k, modulo their number.

    `prepare` is that of the transport. Wherever a prepared step holds its id as plain digits, text or a varint, steps are made by
    replacing it; otherwise, as where requests are compressed, each is prepared by itself.
    """

    def __init__(self, prepare: Callable[[InferRequest], Prepared], requests: Sequence[InferRequest]) -> None:
        self._prepare, self._requests = prepare, requests
        self._templates: dict[tuple[int, bool, bool, int], _Template | None] = {}
        self._encode: _Encode | None = None  # unknown before the first step
        self._first_variants: Sequence[int] = (0,)

    def warm_up(self, sequence: LiveSequence) -> None:
        """Prepares everything that sequences with ids of this width need, before the load."""
        for variant in range(len(self._requests)):
            for ends in (False, True):
                self._step(dataclasses.replace(sequence), variant, starts=False, ends=ends)
        for variant in self._first_variants:
            for ends in (False, True):
                self._step(dataclasses.replace(sequence), variant, starts=True, ends=ends)

    def forget(self) -> None:
        """Has the steps prepared again when they are next needed, as after a change of the transport's headers."""
        self._templates.clear()

    def variant(self, sequence: LiveSequence) -> int:
        """The number of the request that the next step carries."""
        return sequence.sent % len(self._requests)

    def next_step(self, sequence: LiveSequence) -> Prepared:
        """The next step, which counts as sent."""
        sent = sequence.sent
        sequence.sent = sent + 1
        return self._step(sequence, sent % len(self._requests), starts=not sent, ends=sent + 1 >= sequence.length)

    def end(self, sequence: LiveSequence) -> Prepared:
        """A step that ends a sequence early."""
        return self._step(sequence, self.variant(sequence), starts=False, ends=True)

    def _step(self, sequence: LiveSequence, variant: int, *, starts: bool, ends: bool) -> Prepared:
        encoded_id = sequence.encoded_id
        if not encoded_id:
            encode = self._encode = self._encode or self._choose_encoding(sequence.id)
            encoded_id = sequence.encoded_id = encode(sequence.id)
        key = (variant, starts, ends, len(encoded_id))
        try:
            template = self._templates[key]
        except KeyError:
            template = self._make_template(sequence.id, variant, self._encode or _text, starts=starts, ends=ends)
            self._templates[key] = template
        if template is None:
            return self._prepare(with_sequence(self._requests[variant], sequence.id, starts=starts, ends=ends))
        return template.fill(encoded_id)

    def _choose_encoding(self, sequence_id: int | str) -> _Encode:
        """How the transport writes ids: as text, in JSON and for string ids, or as a varint."""
        is_text = isinstance(sequence_id, str) or self._make_template(sequence_id, 0, _text, starts=True, ends=False) is not None
        return _text if is_text else _varint

    def _make_template(self, sequence_id: int | str, variant: int, encode: _Encode, *, starts: bool, ends: bool) -> _Template | None:
        """The step cut at its id; None if a step with a neighbouring id does not differ in the encoded id alone."""
        ids = (sequence_id, _neighbour(sequence_id))
        own, other = (self._prepare(with_sequence(self._requests[variant], one, starts=starts, ends=ends)) for one in ids)
        differing = [index for index, (one, two) in enumerate(zip(own.buffers, other.buffers, strict=True)) if one != two]
        if len(differing) != 1 or own.headers != other.headers:
            return None
        index, (encoded_id, encoded_other) = differing[0], map(encode, ids)
        buffer = own.buffers[index]
        first = _first_difference(buffer, other.buffers[index]) - _first_difference(encoded_id, encoded_other)
        if first < 0:
            return None
        start, end = bytes(buffer[:first]), bytes(buffer[first + len(encoded_id) :])
        template = _Template(tuple(own.buffers[:index]), start, end, tuple(own.buffers[index + 1 :]), own.headers)
        made = [tuple(template.fill(encoded).buffers) for encoded in (encoded_id, encoded_other)]
        return template if made == [tuple(own.buffers), tuple(other.buffers)] else None


class StreamRequests(SequenceRequests):
    """Like `SequenceRequests`, over streams: step k of a sequence is request k of its stream, modulo the stream's length.

    `requests` are those of all streams, one stream after the other; `stream_lengths` says how many each has.
    """

    def __init__(
        self, prepare: Callable[[InferRequest], Prepared], requests: Sequence[InferRequest], stream_lengths: Sequence[int]
    ) -> None:
        super().__init__(prepare, requests)
        self._stream_lengths = stream_lengths
        self._first_variants = list(itertools.accumulate(stream_lengths, initial=0))[:-1]

    @override
    def variant(self, sequence: LiveSequence) -> int:
        stream = sequence.stream
        return self._first_variants[stream] + sequence.sent % self._stream_lengths[stream]

    @override
    def next_step(self, sequence: LiveSequence) -> Prepared:
        variant, sent = self.variant(sequence), sequence.sent
        sequence.sent = sent + 1
        return self._step(sequence, variant, starts=not sent, ends=sent + 1 >= sequence.length)


def _text(sequence_id: int | str) -> bytes:
    return str(sequence_id).encode()


def _varint(sequence_id: int | str) -> bytes:
    """A positive integer as protobuf writes it: seven bits in each byte, the lowest first."""
    value, encoded = int(sequence_id), bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _neighbour(sequence_id: int | str) -> int | str:
    """Another id of the same width."""
    if isinstance(sequence_id, int):
        return sequence_id ^ 1
    return sequence_id[:-1] + ("1" if sequence_id[-1] == "0" else "0")


def _first_difference(one: bytes, two: bytes) -> int:
    """The first place where two texts of the same length differ, of which there is one; -1 if their lengths differ."""
    if len(one) != len(two):
        return -1
    low, high = 0, len(one)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if one[low:middle] != two[low:middle] else (middle, high)
    return low
