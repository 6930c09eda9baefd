"""A pipe that belongs to an event loop is closed once."""

import asyncio
import os

import pytest
import uvloop

from perfkit.process.loop_pipe import pipe_of_loop


def is_open(descriptor):
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


@pytest.fixture
def ends():
    """The two files of a pipe."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as reader, os.fdopen(writing, "wb") as writer:
        yield reader, writer


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("writes", [False, True])
def test_it_is_closed_with_its_transport(ends, run, writes):
    class Protocol(asyncio.Protocol):
        def __init__(self):
            self.lost = asyncio.get_running_loop().create_future()

        def connection_lost(self, _):
            self.lost.set_result(None)

    async def main():
        loop, pipe = asyncio.get_running_loop(), pipe_of_loop(ends[writes])
        descriptor = pipe.fileno()
        transport, protocol = await (loop.connect_write_pipe if writes else loop.connect_read_pipe)(Protocol, pipe)
        was_open = is_open(descriptor)
        transport.close()
        await protocol.lost
        await asyncio.sleep(0)
        return was_open, is_open(descriptor), pipe.closed

    assert run(main()) == (True, False, True)
    assert ends[writes].closed


def test_uvloop_closes_no_file_of_another_thread_that_was_given_the_descriptor(ends):
    class Pipe:
        """uvloop calls its `close` after it has closed the descriptor, which here another file is given at that moment."""

        def __init__(self):
            self.pipe = pipe_of_loop(ends[0])
            self.descriptor = self.pipe.fileno()
            self.was_open = True

        def fileno(self):
            return self.descriptor

        def close(self):
            self.was_open = is_open(self.descriptor)
            os.dup2(ends[1].fileno(), self.descriptor)
            self.pipe.close()

    async def main():
        pipe = Pipe()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(asyncio.Protocol, pipe)
        transport.close()
        await asyncio.sleep(0)
        return pipe

    pipe = uvloop.run(main())
    assert not pipe.was_open
    assert is_open(pipe.descriptor)
    os.close(pipe.descriptor)
