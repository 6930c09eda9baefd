"""Joining a driver: who knows the token, and who does not; and that what comes over a connection is data, never code."""

import asyncio
import os
import pickle

import pytest

from perfkit.fleet.connection import LONGEST_BYTES, JoinError, LongMessageError, UnknownMessageError, accept, join
from perfkit.fleet.messages import OF_MACHINE, Accepted, Ping, Pong, TargetChecked
from perfkit.fleet.token import MAGIC, NONCE_BYTES


async def served(token, call):
    """What the driver's side got, or why it sent the caller away, and what `call(port)` returned or raised."""
    taken = asyncio.get_running_loop().create_future()

    async def take(reader, writer):
        try:
            taken.set_result(await accept(reader, writer, token))
        except JoinError as error:
            taken.set_result(error)

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    try:
        called = await asyncio.gather(call(server.sockets[0].getsockname()[1]), return_exceptions=True)
        return await taken, called[0]
    finally:
        server.close()  # from Python 3.12 on, `async with` would also wait for the end of the connection, which is given to the test


def test_messages_pass_both_ways_in_their_order():
    async def main():
        driver, machine = await served("secret", lambda port: join("127.0.0.1", port, "secret", None))
        for number in range(3):
            driver.send(Ping(number))
            machine.send(TargetChecked(fault="x" * 100_000 * number))
        assert [await machine.receive() for _ in range(3)] == [Ping(number) for number in range(3)]
        assert [len((await driver.receive()).fault) for _ in range(3)] == [0, 100_000, 200_000]
        await machine.close()
        with pytest.raises(EOFError):
            await driver.receive()
        await driver.close()

    asyncio.run(main())


def test_a_machine_with_another_token_is_told_so():
    async def main():
        driver, machine = await served("secret", lambda port: join("127.0.0.1", port, "guess", None))
        assert isinstance(driver, JoinError)
        assert isinstance(machine, JoinError)
        assert str(machine) == "the driver has another token"

    asyncio.run(main())


def test_a_driver_that_does_not_know_the_token_is_not_joined():
    is_over = asyncio.Event()

    async def pretend(reader, writer):
        writer.write(MAGIC + bytes(NONCE_BYTES))
        await reader.readexactly(NONCE_BYTES)
        writer.write(b"1" + bytes(32))
        await reader.read()
        writer.close()
        await writer.wait_closed()
        is_over.set()

    async def main():
        async with await asyncio.start_server(pretend, "127.0.0.1", 0) as server:
            with pytest.raises(JoinError, match="another token"):
                await join("127.0.0.1", server.sockets[0].getsockname()[1], "secret", None)
            await is_over.wait()

    asyncio.run(main())


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\n\r\n", bytes(64)])
def test_a_caller_that_is_no_machine_is_sent_away(sent):
    async def call(port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        writer.write_eof()
        answer = await reader.read()
        writer.close()
        return answer

    async def main():
        driver, answer = await served("secret", call)
        assert isinstance(driver, JoinError)
        assert answer.startswith(MAGIC)
        assert answer[len(MAGIC) + NONCE_BYTES :] in (b"", b"0")

    asyncio.run(main())


class Harmful:
    """Creates a file when it is unpickled."""

    def __init__(self, file):
        self._file = file

    def __reduce__(self):
        return os.mkdir, (str(self._file),)


@pytest.mark.parametrize("side", ["machine", "driver"])
def test_a_pickle_of_a_holder_of_the_token_is_no_message(tmp_path, side):
    async def main():
        driver, machine = await served("secret", lambda port: join("127.0.0.1", port, "secret", None))
        sender, receiver = (machine, driver) if side == "machine" else (driver, machine)
        for body in (pickle.dumps(Harmful(tmp_path / "harm")), b"cos\nsystem\n(S'false'\ntR."):
            sender._writer.write(sender._sealer.seal(body))
            with pytest.raises(UnknownMessageError, match="sent what this version of perfkit cannot read"):
                await receiver.receive()
        sender.send(Pong(7, 8) if side == "machine" else Ping(7))
        assert (await receiver.receive()).number == 7
        assert list(tmp_path.iterdir()) == []
        await machine.close()
        await driver.close()

    asyncio.run(main())


def test_a_frame_with_another_seal_ends_the_connection():
    async def main():
        driver, machine = await served("secret", lambda port: join("127.0.0.1", port, "secret", None))
        body = OF_MACHINE.encoded(Pong(1, 2))
        machine._writer.write(len(body).to_bytes(8, "big") + body + bytes(32))
        with pytest.raises(EOFError):
            await driver.receive()
        await machine.close()
        await driver.close()

    asyncio.run(main())


def test_a_long_message_is_waited_for_as_long_as_parts_of_it_come():
    async def main():
        driver, machine = await served("secret", lambda port: join("127.0.0.1", port, "secret", None))
        frame = machine._sealer.seal(OF_MACHINE.encoded(TargetChecked(fault="x" * 10_000)))
        parts = [frame[at : at + 1000] for at in range(0, len(frame), 1000)]
        machine._writer.write(parts.pop(0))
        # each part is sent when the one before has come, so that the connection is silent in between
        received = await driver.receive(0.5, lambda: machine._writer.write(parts.pop(0)))
        assert received == TargetChecked(fault="x" * 10_000)
        with pytest.raises(TimeoutError):
            await driver.receive(0.01)
        await machine.close()
        await driver.close()

    asyncio.run(main())


def test_a_message_that_is_too_long_is_not_sent(monkeypatch):
    async def main():
        driver, machine = await served("secret", lambda port: join("127.0.0.1", port, "secret", None))
        monkeypatch.setitem(LONGEST_BYTES, "driver", 2000)
        with pytest.raises(LongMessageError, match="give fewer or smaller inputs, or measure shorter load points"):
            driver.send(Accepted("x" * 2000))
        driver.send(Accepted("short"))
        assert await machine.receive() == Accepted("short")
        await machine.close()
        await driver.close()

    asyncio.run(main())


def test_a_length_that_no_message_has_ends_the_connection():
    async def main():
        driver, machine = await served("secret", lambda port: join("127.0.0.1", port, "secret", None))
        machine._writer.write((2**40).to_bytes(8, "big"))
        with pytest.raises(UnknownMessageError, match=r"announced a message of 1,024 GiB, and 256 MiB is the most"):
            await driver.receive()
        await machine.close()
        await driver.close()

    asyncio.run(main())
