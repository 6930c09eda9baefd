"""The file of a load point's replies: what is read back, also after its worker was killed or could not write it."""

import asyncio
import dataclasses
import pickle

import pytest

from perfkit.clock import MonotonicClock
from perfkit.errors import StorageError
from perfkit.load.load_plan import ClosedPlan
from perfkit.process.message_stream import read_message
from perfkit.process.messages import message_bytes
from perfkit.transport.base import Outcome, Reply
from perfkit.workers.reply_file import ReplyFile, read_replies
from perfkit.workers.worker_process import Worker
from tests.measured_points import point_spec


def reply(number, outcome=Outcome.OK):
    return Reply(outcome, 10 * number, 10 * number + 5, variant=number, payload=bytes([number]) * 100)


@pytest.fixture
def file(tmp_path):
    with ReplyFile(tmp_path / "replies") as written:
        for number in range(5):
            written.take(reply(number, Outcome.BROKEN if number == 3 else Outcome.OK))
    return tmp_path / "replies"


def test_ok_replies_are_read_back(file):
    rows = list(read_replies(file, 0, file.stat().st_size))
    assert [(row.started_ns, row.variant, row.payload) for row in rows] == [(10 * n, n, bytes([n]) * 100) for n in (0, 1, 2, 4)]


def test_the_last_row_of_a_worker_that_was_killed_is_left_out_wherever_it_ends(file):
    whole = file.read_bytes()
    last = len(pickle.dumps(tuple(list(read_replies(file, 0, len(whole)))[-1])))
    for cut in range(len(whole) - last + 1, len(whole)):
        file.write_bytes(whole[:cut])
        assert [row.variant for row in read_replies(file, 0, cut)] == [0, 1, 2]


def test_a_worker_that_cannot_write_them_says_so(tmp_path):
    spec = dataclasses.replace(point_spec(ClosedPlan(1, 0), 0, 1, None, 0, 1), replies_file=str(tmp_path / "missing" / "replies"))

    async def main():
        sent, orders = asyncio.StreamReader(), asyncio.StreamReader()
        orders.feed_data(message_bytes(spec))
        serving = asyncio.ensure_future(Worker(sent.feed_data, MonotonicClock()).serve(orders))
        message = await read_message(sent)
        orders.feed_eof()
        await serving
        return message

    error = asyncio.run(main())
    assert isinstance(error, StorageError)
    assert "the requests cannot be written: No such file or directory" in str(error)
