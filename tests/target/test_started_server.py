"""A server that perfkit started: its restarts, and its unexpected end."""

import asyncio
import contextlib

from perfkit.target.started_server import RunningServer, StartedServer
from tests.conditions import passes


class Runs:
    """Runs of a server without a process: each ends when its future has a result."""

    def __init__(self):
        self.ends: list[asyncio.Future[str]] = []

    @contextlib.asynccontextmanager
    async def make(self):
        self.ends.append(asyncio.get_running_loop().create_future())
        number = len(self.ends)

        async def wait_for_end():
            return await self.ends[number - 1]

        ended = asyncio.ensure_future(wait_for_end())
        try:
            yield RunningServer({"http": "http://h:1"}, {"run": number}, 1000 * number, number, ended)
        finally:
            ended.cancel()


def follow(steps):
    """Runs `steps(server, runs)` and gives what was said of the server's end."""
    said = list[str]()

    async def go():
        runs = Runs()
        server = StartedServer("command_server", runs.make)
        await steps(server, runs, said)
        await server.stop()
        await passes(3)

    asyncio.run(go())
    return said


def test_the_end_of_a_restarted_server_is_noticed():
    async def steps(server, runs, said):
        await server.start()
        with server.watched(said.append):
            for number in (2, 3):
                assert await server.restart() == 1000 * number
            await passes(3)
            assert said == []
            runs.ends[2].set_result("ended with exit code 7")
            await passes(3)
        assert server.description == {"run": 1}

    assert follow(steps) == ["the server is gone: it ended with exit code 7"]


def test_an_end_before_it_was_watched_is_noticed_at_once():
    async def steps(server, runs, said):
        await server.start()
        runs.ends[0].set_result("ended with signal 9")
        await passes(3)
        with server.watched(said.append):
            pass

    assert follow(steps) == ["the server is gone: it ended with signal 9"]


def test_a_server_that_was_stopped_or_is_not_watched_says_nothing():
    async def steps(server, runs, said):
        await server.start()
        with server.watched(said.append):
            await server.stop()
            await passes(3)
            await server.start()
        runs.ends[1].set_result("ended with exit code 7")
        await passes(3)

    assert follow(steps) == []


def test_an_end_is_forgotten_when_the_server_is_started_again():
    async def steps(server, runs, said):
        await server.start()
        runs.ends[0].set_result("ended with exit code 7")
        await passes(3)
        await server.restart()
        with server.watched(said.append):
            pass

    assert follow(steps) == []
