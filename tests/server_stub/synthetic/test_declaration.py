"""Parsing of service models, and the message for every error."""

import math

import pytest

from perfkit.errors import ErrorKind, UsageError
from server_stub.options import parse_options
from server_stub.synthetic.declaration import EXAMPLE, SERVICE_EXAMPLES, parse_service_model
from server_stub.synthetic.service_model import (
    Batch,
    Exponential,
    Failures,
    Linear,
    Lognormal,
    ServiceModel,
    SlowFirst,
    SlowShare,
    SlowStart,
    Stall,
    TextForm,
)

MS, S = 10**6, 10**9


def test_the_example_is_parsed_in_all_its_parts():
    assert parse_service_model(EXAMPLE) == ServiceModel(
        service=Exponential(10 * MS),
        servers=1,
        stall=Stall(1 * S, 10 * S, drains_at_once=True),
        failures=Failures(0.01, ErrorKind.UNAVAILABLE),
        slow_start=SlowStart(3.0, 10 * S),
        drift_per_s=0.01,
        seed=7,
        lead_ns=150_000,
    )


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("servers=4", ServiceModel(Linear(5 * MS), servers=4)),
        ("service=constant:250us", ServiceModel(Linear(250_000))),
        ("service=constant:0s", ServiceModel(Linear(0))),
        ("service=constant:.5µs", ServiceModel(Linear(500))),
        ("service=constant:1.5ms", ServiceModel(Linear(1_500_000))),
        ("service=constant:24h", ServiceModel(Linear(24 * 3600 * S))),
        ("service=linear:5ms+2ms/row", ServiceModel(Linear(5 * MS, 2 * MS))),
        ("service=lognormal:10ms:sigma=0.5", ServiceModel(Lognormal(10 * MS, 0.5))),
        ("service=lognormal:10ms:cv=0.5", ServiceModel(Lognormal(10 * MS, math.sqrt(math.log(1.25))))),
        ("stall=1s/10s", ServiceModel(stall=Stall(1 * S, 10 * S, drains_at_once=True))),
        ("drain=at-pace,stall=1s/10s", ServiceModel(stall=Stall(1 * S, 10 * S, drains_at_once=False))),
        ("errors=0.25:400", ServiceModel(failures=Failures(0.25, ErrorKind.INVALID_ARGUMENT))),
        ("errors=100%:500", ServiceModel(failures=Failures(1.0, ErrorKind.INTERNAL))),
        ("first=8x/20", ServiceModel(first=SlowFirst(8.0, 20))),
        ("queue=0", ServiceModel(queue=0)),
        ("slow=3x/2%", ServiceModel(slow=SlowShare(3.0, 0.02))),
        ("drift=-0.5%/s", ServiceModel(drift_per_s=-0.005)),
        ("drift=0.02/s", ServiceModel(drift_per_s=0.02)),
        ("seed=18446744073709551615", ServiceModel(seed=2**64 - 1)),
        ("lead=0s", ServiceModel(lead_ns=0)),
        ("left=counted", ServiceModel(counts_left=True)),
        ("batch=4", ServiceModel(batch=Batch(4, is_awaited=True))),
        ("batch=upto:64", ServiceModel(batch=Batch(64))),
        ("gap=20ms", ServiceModel(gap_ns=20 * MS)),
        ("responses=5,gap=2ms", ServiceModel(responses=5, gap_ns=2 * MS)),
        (
            "tokens=64,tokens_per_event=4,reasoning=8,usage=chunks,stream_error=3,done=off",
            ServiceModel(text=TextForm(64, 4, 8, "chunks", 3, sends_done=False)),
        ),
        ("usage=off,done=on,stream_error=0", ServiceModel(text=TextForm(usage="off", error_after=0))),
    ],
)
def test_valid_declarations_are_parsed(text, model):
    assert parse_service_model(text) == model


def test_every_distribution_in_the_help_is_accepted():
    assert all(parse_service_model(f"service={model}") for model in SERVICE_EXAMPLES)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("batch=0", "--synthetic batch=0: expected a size from 1 to 64 for full batches, or one such as upto:8, got '0'."),
        ("batch=upto:65", "expected a size from 1 to 64"),
        ("batch=4,stall=1s/10s", "--synthetic stall=1s/10s: stalls and batches cannot be combined; remove batch or stall."),
        ("", "--synthetic: '' is not KEY=VALUE; an example is service=exponential:10ms"),
        ("service", "--synthetic: 'service' is not KEY=VALUE"),
        ("service=", "--synthetic: 'service=' is not KEY=VALUE"),
        ("servers=1,", "--synthetic: '' is not KEY=VALUE"),
        (
            "server=1",
            "--synthetic server=1: there is no key 'server'; did you mean 'servers'? The keys are service, servers, batch, queue, stall, drain, errors,",
        ),
        ("colour=red", "--synthetic colour=red: there is no key 'colour'; The keys are service,"),
        ("seed=1,seed=2", "--synthetic seed=2: seed is given twice; remove one."),
        (
            "service=uniform:1ms",
            "--synthetic service=uniform:1ms: there is no distribution 'uniform'; use one such as constant:5ms, exponential:10ms,",
        ),
        ("service=constant", "--synthetic service=constant: expected a duration such as 250us, 10ms or 1s, got ''."),
        ("service=constant:5", "expected a duration such as 250us, 10ms or 1s, got '5'."),
        ("service=constant:-5ms", "expected a duration such as 250us, 10ms or 1s, got '-5ms'."),
        ("service=constant:25h", "25h is longer than 24h."),
        ("service=exponential:0ms", "0ms must be above 0."),
        ("service=exponential:٥ms", "expected a duration"),
        ("service=linear:5ms", "expected a fixed time and a time per row, such as 5ms+2ms/row, got '5ms'."),
        ("service=linear:5ms+2ms", "expected a fixed time and a time per row"),
        ("service=linear:2ms/row", "expected a fixed time and a time per row"),
        ("service=lognormal:10ms", "expected a mean and its spread, such as 10ms:cv=0.5 or 10ms:sigma=0.5, got '10ms'."),
        ("service=lognormal:10ms:cv=x", "expected a mean and its spread"),
        ("service=lognormal:10ms:mu=1", "expected a mean and its spread"),
        ("service=lognormal:10ms:sigma=0", "sigma=0 is sigma 0, which must be above 0 and at most 5; use constant for no spread."),
        ("service=lognormal:10ms:sigma=9", "sigma=9 is sigma 9, which must be above 0 and at most 5"),
        ("service=lognormal:10ms:cv=999999999", "which must be above 0 and at most 5"),
        ("service=lognormal:0s:cv=1", "0s must be above 0"),
        ("servers=0", "--synthetic servers=0: expected a whole number from 1 to 10000, got '0'."),
        ("servers=1.5", "expected a whole number from 1 to 10000, got '1.5'."),
        ("servers=²", "expected a whole number from 1 to 10000"),
        ("seed=-1", "--synthetic seed=-1: expected a whole number from 0 to 18446744073709551615, got '-1'."),
        ("seed=18446744073709551616", "expected a whole number from 0 to"),
        ("stall=1s", "--synthetic stall=1s: expected a duration and a period, such as 1s/10s, got '1s'."),
        ("stall=10s/10s", "a stall must be shorter than its period, or no request would ever depart."),
        ("stall=0s/10s", "0s must be above 0"),
        ("stall=1s/x", "expected a duration such as 250us, 10ms or 1s, got 'x'."),
        ("tokens=0", "--synthetic tokens=0: expected a whole number from 1 to 131072, got '0'."),
        ("tokens_per_event=0", "expected a whole number from 1 to 131072, got '0'."),
        ("reasoning=few", "expected a whole number from 0 to 131072, got 'few'."),
        ("usage=on", "--synthetic usage=on: expected final or chunks or off, got 'on'."),
        ("stream_error=-1", "expected a whole number from 0 to 131072, got '-1'."),
        ("done=no", "--synthetic done=no: expected on or off, got 'no'."),
        ("responses=10001", "expected a whole number from 0 to 10000, got '10001'."),
        ("drain=at-once", "--synthetic drain=at-once: drain needs a stall; add one such as stall=1s/10s."),
        ("stall=1s/10s,drain=slowly", "--synthetic drain=slowly: use at-once (the backlog departs when the stall ends) or at-pace"),
        ("errors=1%", "--synthetic errors=1%: expected a share and one of the statuses 400, 500, 503, such as 1%:503, got '1%'."),
        ("errors=1%:404", "expected a share and one of the statuses 400, 500, 503"),
        ("errors=2:503", "a share must be between 0 and 1, or 0% and 100%."),
        ("errors=-1%:503", "a share must be between 0 and 1, or 0% and 100%."),
        ("errors=few:503", "expected a share such as 1% or 0.01, got 'few'."),
        ("slow_start=3x", "--synthetic slow_start=3x: expected a factor and a decay time, such as 3x/10s, got '3x'."),
        ("first=8x/0", "expected a factor and a number of executions up to 1,000,000, such as 8x/20, got '8x/0'"),
        ("first=8/20", "expected a factor and a number of executions"),
        ("slow_start=ax/10s", "expected a factor and a decay time"),
        ("after_gap=40ms", "expected the additional time and the gap, such as 40ms/100ms, got '40ms'."),
        ("after_gap=0s/100ms", "0s must be above 0"),
        ("batch=4,after_gap=40ms/1s", "gaps and batches cannot be combined; remove batch or after_gap."),
        ("batch=4,queue=20", "bounded queues and batches cannot be combined; remove batch or queue."),
        ("slow_start=0.5x/10s", "the factor must be between 1 and 1000."),
        ("slow_start=3x/0s", "0s must be above 0"),
        ("slow=3x", "--synthetic slow=3x: expected a factor and a share, such as 3x/2%, got '3x'."),
        ("slow=3x/200%", "a share must be between 0 and 1, or 0% and 100%."),
        ("slow=0.5x/2%", "the factor must be between 1 and 1000."),
        ("drift=1%", "--synthetic drift=1%: expected a change per second, such as 1%/s or -0.5%/s, got '1%'."),
        ("drift=x/s", "expected a share such as 1% or 0.01, got 'x'."),
        ("drift=2000%/s", "the change must be between -1000%/s and 1000%/s."),
        ("batch=2,left=counted", "--synthetic left=counted: it is for requests that are served one by one; remove batch or left."),
        ("lead=11ms", "--synthetic lead=11ms: 11ms is too long; the maximum is 10ms."),
    ],
)
def test_every_error_names_the_part_and_the_fix(text, sentence):
    with pytest.raises(UsageError) as error:
        parse_service_model(text)
    assert str(error.value).startswith("--synthetic")
    assert sentence in str(error.value)


def test_the_option_is_parsed_and_defaults_to_a_constant_5_ms():
    assert parse_options([]).synthetic == ServiceModel(Linear(5 * 10**6))
    assert parse_options(["--synthetic", "servers=2"]).synthetic == ServiceModel(servers=2)


def test_it_cannot_be_combined_with_a_model_repository():
    with pytest.raises(UsageError, match="--synthetic configures a built-in model"):
        parse_options(["--model-repository", ".", "--synthetic", "servers=2"])
