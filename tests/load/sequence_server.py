"""A transport whose server keeps sequences, and notes every breach of their rules."""

import asyncio
import json

from perfkit.load.sequence_loops import ClosedSequences, OpenSequences, SequenceListener, SequenceLoad
from perfkit.load.sequence_requests import SequenceRequests
from perfkit.load.sequences import LengthLaw, SequencePlan, SequenceSource
from perfkit.protocol.message import InferRequest
from perfkit.transport.base import Outcome, Prepared, Reply
from tests.load.loops import Measured, S

REQUESTS = tuple(InferRequest("m", (), id=f"r{number}") for number in range(3))


def prepare(request):
    return Prepared((json.dumps({"id": request.id, **request.parameters}).encode(),))


class SequenceServer:
    """`script` gives the service time and the outcome of call n; what is not answered OK is not executed."""

    def __init__(self, clock, script):
        self.clock, self.script = clock, script
        self.calls = []  # (id, starts, ends, number of the request, start)
        self.held = {}  # by id, the steps executed
        self.over = []  # the numbers of steps of the sequences that ended
        self.faults = []
        self.in_flight = {}
        self.at_once = self.at_once_max = 0
        self.is_abandoned = False

    def send(self, prepared):
        call = json.loads(prepared.buffers[0])
        key = call["sequence_id"]
        self.calls.append((key, call["sequence_start"], call["sequence_end"], int(call["id"][1:]), self.clock.now_ns()))
        if key in self.in_flight:
            self.faults.append(f"two requests of {key} in flight")
        self.in_flight[key] = answer = asyncio.get_running_loop().create_future()
        self.at_once = len(self.in_flight)
        self.at_once_max = max(self.at_once, self.at_once_max)
        return self._serve(key, call, answer, *self.script(len(self.calls) - 1))

    async def _serve(self, key, call, answer, service_ns, outcome):
        started_ns = self.clock.now_ns()
        if not self.is_abandoned:
            served = asyncio.ensure_future(self.clock.sleep_until_ns(started_ns + service_ns))
            await asyncio.wait([served, answer], return_when=asyncio.FIRST_COMPLETED)
            served.cancel()
        del self.in_flight[key]
        if self.is_abandoned:
            return Reply(Outcome.UNFINISHED, started_ns, self.clock.now_ns())
        if outcome is Outcome.OK:
            self._execute(key, call)
        return Reply(outcome, started_ns, self.clock.now_ns(), None, "" if outcome is Outcome.OK else outcome.value)

    def _execute(self, key, call):
        if call["sequence_start"] == (key in self.held):
            self.faults.append(f"{key} {'started twice' if call['sequence_start'] else 'was not started'}")
        self.held[key] = self.held.get(key, 0) + 1
        if call["sequence_end"]:
            self.over.append(self.held.pop(key))

    def abandon(self):
        self.is_abandoned = True
        for answer in self.in_flight.values():
            answer.set_result(None)


class Events(SequenceListener):
    """What the loop tells of sequences."""

    def __init__(self):
        self.started, self.ended, self.failed, self.untimed_replies = [], [], [], []

    def sequence_started(self, start_ns):
        self.started.append(start_ns)

    def sequence_ended(self, start_ns, end_ns, *, is_ok):
        (self.ended if is_ok else self.failed).append((start_ns, end_ns))

    def untimed(self, reply):
        self.untimed_replies.append(reply)


class MeasuredSequences(Measured):
    """A loop of sequences that was run to its end."""

    def __init__(self, script, schedule=None, *, plan, worker=0, workers=1, **options):
        self.events = Events()
        load = SequenceLoad(SequenceSource(plan, worker, workers), SequenceRequests(prepare, REQUESTS), self.events)
        kinds = (ClosedSequences, OpenSequences)
        options = {"sequences": load, "worker": worker, "workers": workers, **options}
        if schedule is not None:
            options |= {"live": plan.live, "think_time_ns": plan.think_time_ns}
        super().__init__(lambda clock: SequenceServer(clock, script), schedule, start_ns=7 * S, kinds=kinds, requests=(), **options)

    @property
    def server(self):
        return self.transport


def fixed(length, **options):
    return SequencePlan(LengthLaw(length, length), first_id=options.pop("first_id", 10**18), **options)
