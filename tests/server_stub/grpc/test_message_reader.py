"""Messages in any pieces, compared with splitting all bytes at once, and the memory that is held for them."""

import random
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server_stub.devices.host_memory import HostMemory
from server_stub.grpc.message_reader import MessageReader

MIB = 1 << 20
SIZES = st.lists(st.sampled_from([0, 1, 4, 5, 100, MIB - 1, MIB, MIB + 1, 2 * MIB + 3]) | st.integers(0, 1000), max_size=6)


def split(data):
    """The whole messages in data, and whether nothing is left."""
    messages = []
    while len(data) >= 5:
        flag, length = struct.unpack(">BI", data[:5])
        if len(data) < 5 + length:
            break
        messages.append((data[5 : 5 + length], flag != 0))
        data = data[5 + length :]
    return messages, not data


def memory_of(reader):
    """All memory of the message that has begun, and what of it is left."""
    space: Any = reader.space()
    return space.obj, space


def as_pairs(messages):
    return [(bytes(message.data), message.is_compressed) for message in messages]


@given(SIZES, st.integers(0, 10), st.integers(0, 2**32))
def test_messages_come_out_whole_and_as_early_as_possible_whatever_the_pieces(sizes, missing_bytes, seed):
    """Bytes come by `feed`, or into `space` where there is some."""
    choices = random.Random(seed)
    data = b"".join(struct.pack(">BI", choices.choice([0, 1, 255]), size) + choices.randbytes(size) for size in sizes)
    data = data[: len(data) - min(missing_bytes, len(data))]
    reader, came, position = MessageReader(1 << 30, HostMemory().take), [], 0
    while position < len(data):
        part = data[position : position + choices.choice([1, 3, 100, 70_000, 3 * MIB])]
        space = reader.space() if choices.random() < 0.5 else None
        if space is None:
            came += reader.feed(memoryview(part))
        else:
            part = part[: len(space)]
            space[: len(part)] = part
            came += reader.advance(len(part))
        position += len(part)
        if choices.random() < 0.2:
            assert as_pairs(came) == split(data[:position])[0]
    expected, is_empty = split(data)
    assert (as_pairs(came), reader.is_empty) == (expected, is_empty)


def test_a_message_is_not_changed_by_what_follows_it():
    reader, scratch = MessageReader(1 << 30, HostMemory().take), bytearray(b"\0\0\0\0\x03abc")
    (first,) = reader.feed(memoryview(scratch))
    scratch[:] = b"\0\0\0\0\x03def"
    (second,) = reader.feed(memoryview(scratch))
    reader.feed(memoryview(b"\0\0\0\0\x03"))
    memory_of(reader)[1][:] = b"ghi"
    (third,) = reader.advance(3)
    reader.feed(memoryview(b"\0\0\0\0\x03jkl"))
    assert [bytes(one.data) for one in (first, second, third)] == [b"abc", b"def", b"ghi"]
    assert memoryview(third.data).readonly


@pytest.mark.parametrize("announced", [MIB + 1, 1 << 30])
def test_a_mib_is_reserved_until_so_much_has_arrived(announced):
    reader = MessageReader(1 << 30, HostMemory().take)
    reader.feed(memoryview(struct.pack(">BI", 0, announced)))
    for more_bytes in (0, 1, 1000, MIB - 1002):
        reader.feed(memoryview(bytes(more_bytes)))
        assert len(memory_of(reader)[0]) == MIB
    reader.feed(memoryview(b"x"))
    assert len(memory_of(reader)[1]) == announced - MIB, "the rest follows"


def test_a_small_message_has_memory_of_its_size():
    reader = MessageReader(1 << 30, HostMemory().take)
    reader.feed(memoryview(struct.pack(">BI", 0, 1000)))
    assert len(memory_of(reader)[0]) == 1000


def test_a_message_of_the_largest_size_is_accepted_and_one_above_is_refused_at_its_prefix():
    assert as_pairs(MessageReader(3, HostMemory().take).feed(memoryview(b"\0\0\0\0\x03abc"))) == [(b"abc", False)]
    reader = MessageReader(3, HostMemory().take)
    assert reader.feed(memoryview(b"\0\0\0\0")) == []
    assert reader.feed(memoryview(b"\x04abcd")) == []
    assert reader.refusal == "SERVER: Received message larger than max (4 vs. 3)"
