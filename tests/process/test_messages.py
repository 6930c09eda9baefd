"""The bytes of messages, read at once, in pieces, and cut off."""

import asyncio
import io
import os
import sys

import pytest
import uvloop

from perfkit.process.message_stream import opened_stdin, read_message
from perfkit.process.messages import load_message, message_bytes

MESSAGES = [None, {"a": (1, 2.5)}, b"x" * 70_000]
STREAM = b"".join(map(message_bytes, MESSAGES))


def read_all(pieces):
    async def main():
        reader = asyncio.StreamReader()
        for piece in pieces:
            reader.feed_data(piece)
        reader.feed_eof()
        messages = []
        while True:
            try:
                messages.append(await read_message(reader))
            except EOFError:
                return messages

    return asyncio.run(main())


@pytest.mark.parametrize("size", [1, 7, len(STREAM)])
def test_messages_are_read_however_their_bytes_arrive(size):
    assert read_all(STREAM[start : start + size] for start in range(0, len(STREAM), size)) == MESSAGES


@pytest.mark.parametrize("missing", [1, 70_000, len(message_bytes(MESSAGES[2])) - 3])
def test_a_message_that_is_cut_off_ends_the_stream(missing):
    assert read_all([STREAM[:-missing]]) == MESSAGES[:2]
    file = io.BytesIO(STREAM[:-missing])
    assert [load_message(file), load_message(file)] == MESSAGES[:2]
    with pytest.raises(EOFError):
        load_message(file)


def test_a_blocking_file_gives_the_same_messages():
    file = io.BytesIO(STREAM)
    assert [load_message(file) for _ in MESSAGES] == MESSAGES
    with pytest.raises(EOFError):
        load_message(file)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_messages_come_from_stdin_which_stays_open(monkeypatch, run):
    reading, writing = os.pipe()

    async def main():
        async with opened_stdin() as reader:
            return [await read_message(reader) for _ in MESSAGES[:2]]

    with os.fdopen(reading) as stdin, os.fdopen(writing, "wb") as other_end:
        other_end.write(b"".join(map(message_bytes, MESSAGES[:2])))
        other_end.flush()
        monkeypatch.setattr(sys, "stdin", stdin)
        assert run(main()) == MESSAGES[:2]
        assert os.fstat(stdin.fileno()).st_ino == os.fstat(other_end.fileno()).st_ino
