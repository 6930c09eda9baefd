"""How a law is written, and what every mistake in it is answered with."""

import math

import pytest

from perfkit.errors import ErrorKind, UsageError
from server_stub.config import parse_options
from server_stub.synthetic.declaration import EXAMPLE, LAWS, parse_law
from server_stub.synthetic.law import Batch, Exponential, Failures, Law, Linear, Lognormal, SlowStart, Stall

MS, S = 10**6, 10**9


def test_the_example_reads_as_it_says():
    assert parse_law(EXAMPLE) == Law(
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
    ("text", "law"),
    [
        ("servers=4", Law(Linear(5 * MS), servers=4)),
        ("service=constant:250us", Law(Linear(250_000))),
        ("service=constant:0s", Law(Linear(0))),
        ("service=constant:.5µs", Law(Linear(500))),
        ("service=constant:1.5ms", Law(Linear(1_500_000))),
        ("service=constant:24h", Law(Linear(24 * 3600 * S))),
        ("service=linear:5ms+2ms/row", Law(Linear(5 * MS, 2 * MS))),
        ("service=lognormal:10ms:sigma=0.5", Law(Lognormal(10 * MS, 0.5))),
        ("service=lognormal:10ms:cv=0.5", Law(Lognormal(10 * MS, math.sqrt(math.log(1.25))))),
        ("stall=1s/10s", Law(stall=Stall(1 * S, 10 * S, drains_at_once=True))),
        ("drain=at-pace,stall=1s/10s", Law(stall=Stall(1 * S, 10 * S, drains_at_once=False))),
        ("errors=0.25:400", Law(failures=Failures(0.25, ErrorKind.INVALID_ARGUMENT))),
        ("errors=100%:500", Law(failures=Failures(1.0, ErrorKind.INTERNAL))),
        ("drift=-0.5%/s", Law(drift_per_s=-0.005)),
        ("drift=0.02/s", Law(drift_per_s=0.02)),
        ("seed=18446744073709551615", Law(seed=2**64 - 1)),
        ("lead=0s", Law(lead_ns=0)),
        ("batch=4", Law(batch=Batch(4, is_awaited=True))),
        ("batch=upto:64", Law(batch=Batch(64))),
    ],
)
def test_what_can_be_written(text, law):
    assert parse_law(text) == law


def test_every_law_that_help_names_can_be_written():
    assert all(parse_law(f"service={law}") for law in LAWS)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("batch=0", "--synthetic batch=0: expected a size from 1 to 64 that is waited for, or such as upto:8, found '0'."),
        ("batch=upto:65", "expected a size from 1 to 64"),
        ("batch=4,stall=1s/10s", "--synthetic stall=1s/10s: there are no stalls where requests are batched; leave batch or stall out."),
        ("", "--synthetic: '' is not KEY=VALUE; an example is service=exponential:10ms"),
        ("service", "--synthetic: 'service' is not KEY=VALUE"),
        ("service=", "--synthetic: 'service=' is not KEY=VALUE"),
        ("servers=1,", "--synthetic: '' is not KEY=VALUE"),
        (
            "server=1",
            "--synthetic server=1: there is no key 'server'; did you mean 'servers'? Known are service, servers, batch, stall, drain, errors,",
        ),
        ("colour=red", "--synthetic colour=red: there is no key 'colour'; Known are service,"),
        ("seed=1,seed=2", "--synthetic seed=2: seed is given twice; leave one of the two out."),
        (
            "service=uniform:1ms",
            "--synthetic service=uniform:1ms: there is no law 'uniform'; use one such as constant:5ms, exponential:10ms,",
        ),
        ("service=constant", "--synthetic service=constant: expected a duration such as 250us, 10ms or 1s, found ''."),
        ("service=constant:5", "expected a duration such as 250us, 10ms or 1s, found '5'."),
        ("service=constant:-5ms", "expected a duration such as 250us, 10ms or 1s, found '-5ms'."),
        ("service=constant:25h", "25h is longer than 24h."),
        ("service=exponential:0ms", "0ms is no time at all; it has to be above 0."),
        ("service=exponential:٥ms", "expected a duration"),
        ("service=linear:5ms", "expected a time and what each row of a batch adds, such as 5ms+2ms/row, found '5ms'."),
        ("service=linear:5ms+2ms", "expected a time and what each row of a batch adds"),
        ("service=linear:2ms/row", "expected a time and what each row of a batch adds"),
        ("service=lognormal:10ms", "expected a mean and its spread, such as 10ms:cv=0.5 or 10ms:sigma=0.5, found '10ms'."),
        ("service=lognormal:10ms:cv=x", "expected a mean and its spread"),
        ("service=lognormal:10ms:mu=1", "expected a mean and its spread"),
        ("service=lognormal:10ms:sigma=0", "sigma=0 is sigma 0, which has to be above 0 and at most 5; use constant for no spread."),
        ("service=lognormal:10ms:sigma=9", "sigma=9 is sigma 9, which has to be above 0 and at most 5"),
        ("service=lognormal:10ms:cv=999999999", "which has to be above 0 and at most 5"),
        ("service=lognormal:0s:cv=1", "0s is no time at all"),
        ("servers=0", "--synthetic servers=0: expected a whole number from 1 to 10000, found '0'."),
        ("servers=1.5", "expected a whole number from 1 to 10000, found '1.5'."),
        ("servers=²", "expected a whole number from 1 to 10000"),
        ("seed=-1", "--synthetic seed=-1: expected a whole number from 0 to 18446744073709551615, found '-1'."),
        ("seed=18446744073709551616", "expected a whole number from 0 to"),
        ("stall=1s", "--synthetic stall=1s: expected how long and how often, such as 1s/10s, found '1s'."),
        ("stall=10s/10s", "a stall is shorter than its period, or nothing would ever depart."),
        ("stall=0s/10s", "0s is no time at all"),
        ("stall=1s/x", "expected a duration such as 250us, 10ms or 1s, found 'x'."),
        ("drain=at-once", "--synthetic drain=at-once: it says how a stall ends, and there is none; add one such as stall=1s/10s."),
        ("stall=1s/10s,drain=slowly", "--synthetic drain=slowly: a backlog leaves at-once when the stall ends, or is served on at-pace"),
        ("errors=1%", "--synthetic errors=1%: expected a share and one of the statuses 400, 500, 503, such as 1%:503, found '1%'."),
        ("errors=1%:404", "expected a share and one of the statuses 400, 500, 503"),
        ("errors=2:503", "a share lies between 0 and 1, or 0% and 100%."),
        ("errors=-1%:503", "a share lies between 0 and 1, or 0% and 100%."),
        ("errors=few:503", "expected a share such as 1% or 0.01, found 'few'."),
        ("slow_start=3x", "--synthetic slow_start=3x: expected a factor and a decay time, such as 3x/10s, found '3x'."),
        ("slow_start=ax/10s", "expected a factor and a decay time"),
        ("slow_start=0.5x/10s", "service begins 1 to 1000 times longer than declared."),
        ("slow_start=3x/0s", "0s is no time at all"),
        ("drift=1%", "--synthetic drift=1%: expected the change in every second, such as 1%/s or -0.5%/s, found '1%'."),
        ("drift=x/s", "expected a share such as 1% or 0.01, found 'x'."),
        ("drift=2000%/s", "at most 1000%/s are added or taken."),
        ("lead=11ms", "--synthetic lead=11ms: 11ms is longer than any way through front and kernel; at most 10ms."),
    ],
)
def test_every_mistake_names_the_part_and_the_fix(text, sentence):
    with pytest.raises(UsageError) as error:
        parse_law(text)
    assert str(error.value).startswith("--synthetic")
    assert sentence in str(error.value)


def test_the_option_reads_a_law_and_none_is_the_default():
    assert parse_options([]).synthetic is None
    assert parse_options(["--synthetic", "servers=2"]).synthetic == Law(servers=2)


def test_a_folder_of_models_takes_no_law():
    with pytest.raises(UsageError, match="--synthetic declares a built-in model, which --model-repository takes the place of"):
        parse_options(["--model-repository", ".", "--synthetic", "servers=2"])
