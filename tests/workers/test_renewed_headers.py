"""Headers that change while load is sent: every kind of request has the new ones, whoever holds it."""

import asyncio
import collections
import dataclasses
import threading

import numpy as np
import pytest

from perfkit.clock import MonotonicClock
from perfkit.load.load_plan import ClosedPlan
from perfkit.load.loop import Stoppable
from perfkit.load.sequences import LengthLaw, SequencePlan
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Datatype, tensor_from_array
from perfkit.target.address import Address
from perfkit.workers.messages import WorkerSpec
from perfkit.workers.prepared_workload import RenewedHeaders
from perfkit.workers.worker import execute
from tests.json_server import serving, v2_handler
from tests.measured_points import workload_spec

S = 1_000_000_000
REQUESTS = tuple(InferRequest("m", (tensor_from_array("i", Datatype.FP32, np.array([value], np.float32)),)) for value in (1, 2, 3))


AGES = ("old", "new", "newest")
PREPARED = 20
"""More requests than are prepared, with headers that are older then, before a connection sends them."""


def newer_before_the_last_older(ages):
    """How many requests of a connection had newer headers than one that came later."""
    return max((sum(one > age for one in ages[:place]) for place, age in enumerate(ages)), default=0)


class Tokens:
    """The tokens that a server was sent, in how many requests each, and their ages in the order of each connection."""

    def __init__(self):
        self._changed, self.seen = threading.Condition(), dict[str, int]()
        self.ages = collections.defaultdict[int, list[int]](list)

    def take(self, token, port):
        with self._changed:
            self.seen[token] = self.seen.get(token, 0) + 1
            self.ages[port].append(AGES.index(token.split()[0]))
            self._changed.notify_all()

    def await_requests(self, token, number):
        with self._changed:
            assert self._changed.wait_for(lambda: self.seen.get(token, 0) >= number, 30)


def addresses(port, token, number):
    return tuple(Address("http", "127.0.0.1", port, headers={"authorization": f"{token} {name}"}) for name in range(number))


def spec_of(kind, port):
    """A worker's load, of one workload or of two."""
    sequences = SequencePlan(LengthLaw(4, 4), first_id=1) if kind == "sequences" else None
    load = ClosedPlan(4, 0, sequences)
    number = 2 if kind.startswith("mix") else 1
    own = tuple(
        dataclasses.replace(workload_spec(load), address=address, requests=REQUESTS, seed=1) for address in addresses(port, "old", number)
    )
    if kind == "replicas":
        own = (
            dataclasses.replace(
                own[0], address=dataclasses.replace(own[0].address, replicas=(dataclasses.replace(own[0].address, host="localhost"),))
            ),
        )
    is_shared = kind == "mix of one load"
    return WorkerSpec(own, 0, 60 * S, None, S, load if is_shared else None, (1, 2) if is_shared else (), timeout_ns=S)


@pytest.mark.parametrize("engine", ["wire", "reference"])
@pytest.mark.parametrize("kind", ["plain", "sequences", "mix", "mix of one load", "replicas"])
def test_requests_of_every_kind_have_the_new_headers(kind, engine):
    tokens = Tokens()

    class Handler(v2_handler(lambda _: None)):  # type: ignore[misc]  # made for this test
        def do_POST(self):
            tokens.take(self.headers["authorization"], self.client_address[1])
            super().do_POST()

    async def main(port):
        loops, renewal = list[Stoppable](), RenewedHeaders()
        spec = spec_of(kind, port)
        spec = dataclasses.replace(
            spec,
            workloads=tuple(
                dataclasses.replace(one, transport=dataclasses.replace(one.transport, engine=engine, timeout_ns=10 * S))
                for one in spec.workloads
            ),
        )
        sending = asyncio.ensure_future(execute(spec, MonotonicClock(), on_loop=loops.append, renewal=renewal))
        names = range(len(spec.workloads))
        for index, token in enumerate(AGES):
            if index:
                fresh = addresses(port, token, len(names))
                if kind == "replicas":
                    fresh = (dataclasses.replace(fresh[0], replicas=(dataclasses.replace(fresh[0], host="localhost"),)),)
                renewal.come(fresh)
            for name in names:  # on each connection more than the requests that are prepared
                await asyncio.to_thread(tokens.await_requests, f"{token} {name}", 8 * PREPARED)
        loops[0].stop("enough")
        return (await sending).ending.reason

    with serving(Handler) as port:
        assert asyncio.run(main(port)) == "enough"
    assert max(map(newer_before_the_last_older, tokens.ages.values())) < PREPARED
