"""Sequences of geometric length on a single exponential server, in virtual time, against closed forms.

Arrivals that start sequences are Poisson with rate λ, and after each step a sequence goes on with probability 1 - 1/m: the server is a queue with
Bernoulli feedback. Its number of sequences N is geometric with ρ = λm/μ (Jackson 1957), as in M/M/1 with arrivals at the rate λm. By
Little's law a sequence takes E[N]/λ = m/(μ - λm) on average (Takács 1963). A step that comes in, from outside or as feedback, sees N as it is on
average (Lavenberg and Reiser 1980), so the time of each is exponential with the rate μ - λm.
"""

import math
import random

import numpy as np

from perfkit.load.arrivals import Schedule, constant_rate
from perfkit.load.sequences import LengthLaw, SequencePlan
from perfkit.transport.base import Outcome
from tests.load.loops import S
from tests.load.sequence_server import MeasuredSequences

MEAN_LENGTH, SERVICE_PER_S, RUNS, WINDOW_S = 4.0, 100.0, 12, 40


class ExponentialServer:
    """One server, first come, first served."""

    def __init__(self, seed):
        self.random, self.free_ns, self.clock = random.Random(seed), 0, None

    async def begin(self, _loop, clock):
        self.clock = clock

    def __call__(self, _):
        now_ns = self.clock.now_ns()
        self.free_ns = max(self.free_ns, now_ns) + round(self.random.expovariate(SERVICE_PER_S) * S)
        return self.free_ns - now_ns, Outcome.OK


def measure(rate_per_s, seed):
    """The mean time of a sequence and that of a step in seconds, and the shares of steps that took longer than the median and the p90."""
    server = ExponentialServer(seed)
    plan = SequencePlan(LengthLaw(geometric_mean=MEAN_LENGTH), 1, (seed, 1))
    schedule = Schedule("poisson", constant_rate(rate_per_s), (seed,))
    measured = MeasuredSequences(server, schedule, plan=plan, warmup_ns=5 * S, window_ns=WINDOW_S * S, during=server.begin)
    window = range(measured.phases.window_start_ns, measured.phases.window_start_ns + WINDOW_S * S)
    sequences = [end - start for start, end in measured.events.ended if end in window]
    steps = np.array([reply.finished_ns - reply.intended_ns for reply in measured.replies if reply.intended_ns in window]) / S
    drain_per_s = SERVICE_PER_S - rate_per_s * MEAN_LENGTH
    return np.mean(sequences) / S, steps.mean(), *((steps > math.log(one) / drain_per_s).mean() for one in (2, 10))


def test_sequences_of_geometric_length_take_what_the_closed_form_says():
    utilisation = 0.5
    rate_per_s = utilisation * SERVICE_PER_S / MEAN_LENGTH
    drain_per_s = SERVICE_PER_S * (1 - utilisation)
    truth = MEAN_LENGTH / drain_per_s, 1 / drain_per_s, 1 / 2, 1 / 10
    runs = np.array([measure(rate_per_s, seed) for seed in range(RUNS)])
    # Student's t with 11 degrees of freedom: beyond 4.44 once in 1,000, for one of four figures once in 250; the seeds are fixed
    margin = 4.44 * runs.std(axis=0, ddof=1) / math.sqrt(RUNS)
    assert (np.abs(runs.mean(axis=0) - truth) <= margin).all()
    assert (margin / truth < 0.3).all()
