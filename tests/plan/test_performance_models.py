"""The validation of queueing models: points from their closed forms accept them, others do not; what-ifs follow the formulas."""

import math

import numpy as np
import pytest

from perfkit.figures.resources import ServerFigures
from perfkit.plan.evidence import Evidence, OpenPoint, read_sources
from perfkit.plan.model import RatePoint
from perfkit.plan.performance_models import BATCH, MGC, validate_models, what_if
from perfkit.plan.queueing import BatchQueue, MgcQueue
from perfkit.plan.slo_capacity import Capacity
from tests.queue_results import bucket_counts

RATES = (20.0, 35.0, 50.0, 60.0, 75.0, 80.0, 85.0)
CAPACITY = Capacity(90.0, 88.0, 92.0)


def measured(rate, mean_s, p99_s=None, samples=10_000_000):
    percentiles = {} if p99_s is None else {"p99": p99_s * 1e9}
    return RatePoint(rate, "kept up", 1, samples, rate, None, 0.0, mean_s * 1e9, percentiles, ())


def mm1(rate, **options):
    return measured(rate, 1 / (100 - rate), math.log(100) / (100 - rate), **options)


def validated(evidence, points, capacity=CAPACITY):
    return validate_models(evidence, points, capacity, np.random.default_rng(1))


@pytest.fixture
def evidence_with(write):
    """Evidence of a server with exponential service times of 10 ms on average, and batches of this size in its statistics."""
    times = bucket_counts([-math.log1p(-(place + 0.5) / 2000) / 100 for place in range(2000)])
    (measured,) = read_sources([str(write((20,), seconds=5))])[0].result.points

    def made(mean_batch, batch_size=1):
        server = None if mean_batch is None else ServerFigures(100, 0, 1e7, 0, 0, 1e7, 0, 100, mean_batch)
        opened = OpenPoint(measured.model_copy(update={"server": server}), 0, ())
        return Evidence("m", "", "http", "m", batch_size, "", ("r",), (opened,), (), (times,))

    return made


@pytest.fixture
def evidence(evidence_with):
    return evidence_with(2.5)


def test_the_model_behind_the_points_is_accepted_and_the_other_rejected(evidence):
    (mgc, batch), (queue,) = validated(evidence, [mm1(rate) for rate in RATES])
    assert (mgc.is_accepted, batch.is_accepted) == (True, False)
    assert isinstance(queue, MgcQueue)
    assert queue.servers == 1
    assert {held.rate_per_s for held in mgc.errors} == {50.0, 75.0, 80.0, 85.0}


def test_batch_service_is_accepted_for_points_of_batch_service(evidence):
    truth = BatchQueue(0.009, 0.05)
    points = [measured(rate, truth.mean_response_time(rate), 0.5) for rate in RATES]
    (mgc, batch), (queue,) = validated(evidence, points)
    assert (mgc.is_accepted, batch.is_accepted) == (False, True)
    assert isinstance(queue, BatchQueue)
    assert (queue.per_request, queue.fixed) == pytest.approx((0.009, 0.05), rel=0.1)


@pytest.mark.parametrize(
    ("mean_batch", "batch_size", "reason"),
    [
        (None, 1, "cannot be validated without the sizes of the batches"),
        (1.0, 1, "cannot apply: the server forms no batches; a batch is of 1.00 requests on average at most."),
        (4.0, 4, "cannot apply: the server forms no batches; a batch is of 1.00 requests"),
    ],
)
def test_batch_service_is_not_used_for_a_server_that_was_not_seen_to_form_batches(evidence_with, mean_batch, batch_size, reason):
    truth = BatchQueue(0.009, 0.05)
    points = [measured(rate, truth.mean_response_time(rate), 0.5) for rate in RATES]
    (_, batch), queues = validated(evidence_with(mean_batch, batch_size), points)
    assert reason in batch.sentence
    assert (batch.model, batch.verdict, queues) == (BATCH, "rejected", ())


def test_a_model_that_noise_alone_lets_pass_answers_no_what_if(evidence):
    """Windows of a few seconds: the same points as of the queue itself, with so few samples that errors of any size would pass."""
    (mgc, batch), queues = validated(evidence, [mm1(rate, samples=round(5 * rate)) for rate in RATES])
    assert (mgc.verdict, batch.verdict, queues) == ("not validated", "not validated", ())
    assert "the measurements are too noisy to tell (errors up to " in mgc.sentence


def test_without_a_held_out_p99_mgc_is_rejected(evidence):
    (mgc, _), queues = validated(evidence, [measured(rate, 1 / (100 - rate)) for rate in RATES])
    assert not mgc.is_accepted
    assert "cannot be validated without a p99" in mgc.sentence
    assert not any(isinstance(queue, MgcQueue) for queue in queues)


def test_too_few_rates_reject_both_models(evidence):
    validations, queues = validated(evidence, [mm1(rate) for rate in RATES[:5]])
    assert ["cannot be validated. Validation needs" in one.sentence for one in validations] == [True, True]
    assert queues == ()
    assert validated(evidence, [mm1(rate) for rate in RATES], None) == ((), ())


def test_what_if_of_servers_follows_mmc():
    service = tuple(-math.log1p(-(place + 0.5) / 200) / 100 for place in range(200))
    rows = {row.change: row for row in what_if(MgcQueue(1, service), {"p99": 300_000_000}, 80.0)}
    assert {row.model for row in rows.values()} == {MGC}
    alone, faster, slower = rows["unchanged (1 server in the model)"], rows["service 20 % faster"], rows["service 25 % slower"]
    assert alone.mean_ns == pytest.approx(50e6, rel=0.03)
    assert alone.p99_ns == pytest.approx(math.log(100) * 50e6, rel=0.03)
    assert alone.capacity_per_s == pytest.approx(100 - math.log(100) / 0.3, rel=0.03)
    assert faster.mean_ns == pytest.approx(1e9 / 45, rel=0.03)
    assert slower.saturation_per_s == pytest.approx(80, rel=0.03)
    assert slower.mean_ns is None or slower.mean_ns > 1e9  # all but saturated
    # M/M/2 at a load of 0.4: E[R] = 10 ms / (1 - 0.16)
    assert rows["2 servers"].mean_ns == pytest.approx(10e6 / (1 - 0.4**2), rel=0.03)


def test_what_if_of_batches_follows_the_bound():
    unchanged, share, fixed, more = what_if(BatchQueue(1.0, 2.0), {"p99": 1}, 0.9)
    assert {row.model for row in (unchanged, share, fixed, more)} == {BATCH}
    assert unchanged.mean_ns == BatchQueue(1.0, 2.0).mean_response_time(0.9) * 1e9
    assert (share.saturation_per_s, fixed.saturation_per_s, more.saturation_per_s) == pytest.approx((1.25, 1.0, 0.8))
    assert share.mean_ns == BatchQueue(0.8, 2.0).mean_response_time(0.9) * 1e9
    assert fixed.mean_ns == BatchQueue(1.0, 1.6).mean_response_time(0.9) * 1e9
    assert (more.mean_ns, more.capacity_per_s, more.p99_ns) == (None, None, None)
