"""`perfkit worker --keep`, and how long it tries to connect."""

import asyncio

import pytest

from perfkit.cli import worker
from perfkit.errors import TargetError
from perfkit.fleet.connection import JoinError
from perfkit.fleet.machine import RefusedError


@pytest.mark.parametrize(
    "refusal", [RefusedError("the driver refused this machine: it is complete"), JoinError("the driver has another token")]
)
def test_a_kept_machine_that_is_refused_waits_before_it_tries_again(monkeypatch, capfd, refusal):
    monkeypatch.setattr(worker, "_TRIES_EVERY_S", 0.01)
    calls = []

    async def work(within_s):
        calls.append(within_s)
        if len(calls) > 1:
            if not within_s:
                raise TargetError("cannot be joined")
            raise refusal

    asyncio.run(worker._keep_working(work, 0.1))
    assert 2 < len(calls) <= 12, "one try after the other would be thousands"
    said = capfd.readouterr().err
    assert said.count(str(refusal)) == 1
    assert "no further run has come" in said


def test_a_machine_that_is_refused_at_first_does_not_stay():
    async def work(_):
        raise RefusedError("it is complete")

    with pytest.raises(RefusedError):
        asyncio.run(worker._keep_working(work, 10))


def test_a_host_that_does_not_answer_is_given_up_in_time(monkeypatch):
    async def wait(*_):
        await asyncio.Event().wait()

    monkeypatch.setattr(worker, "_TRIES_EVERY_S", 0.01)
    monkeypatch.setattr("perfkit.fleet.connection.join", wait)
    with pytest.raises(TargetError, match="tcp://h:1: cannot be joined: no answer"):
        asyncio.run(worker._connect("h", 1, "secret", None, 0.02))
