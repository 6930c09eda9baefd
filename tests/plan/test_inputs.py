"""The texts of the command line as inputs of a plan: literal values, and the sentences of refusals."""

import pytest

from perfkit.errors import UsageError
from perfkit.plan.forecast import parse_lead_time_days, parse_peaks
from perfkit.plan.input_texts import Price, parse_prices
from perfkit.plan.inputs import parse_demand_per_s, parse_headroom, parse_power_w, parse_slo

NO_RESPONSE_TIME = "--slo: a plan needs a limit on a percentile of the response time, such as 'p99<50ms': its curves are of response times"


def test_limits_may_be_in_one_text_or_several():
    slo = parse_slo(["p99<50ms,p50 <= 5ms", "error_rate<0.1%"])
    assert (slo.percentiles_ns, slo.error_rate) == ({0.99: 50_000_000, 0.5: 5_000_000}, 0.001)
    joint = parse_slo(["p99<20s,first_token.p99.9<500ms", "per_token.p50<40ms,per_token.p99<90ms"])
    assert (joint.percentiles_ns, joint.further_ns) == (
        {0.99: 20_000_000_000},
        {"first_token_time": {0.999: 500_000_000}, "time_per_output_token": {0.5: 40_000_000, 0.99: 90_000_000}},
    )
    assert parse_slo(["p99.9<1s"]).percentiles_ns == {0.999: 1_000_000_000}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["p99<50"], "--slo 'p99<50': expected a duration such as 250us, 10ms, 30s or 2m, found '50'"),
        (["p99>50ms"], "--slo 'p99>50ms': expected a limit such as 'p99<50ms' or 'error_rate<0.1%'"),
        (["p98<50ms"], "--slo 'p98<50ms': 'p98' is not a known percentile; known are p50, p90, p95, p99, p99_9, p99_99 and error_rate"),
        (["p99<0s"], "--slo 'p99<0s': a limit must be above zero"),
        (["p99<50ms", "p99<60ms"], "--slo: p99 has two limits; give one"),
        (
            ["p99<1s,last_token.p99<1s"],
            "--slo 'last_token.p99<1s': 'last_token' is not a known part of an answer; known are first_response, first_token, per_token",
        ),
        (
            ["p99<1s,first_token.error_rate<1%"],
            "--slo 'first_token.error_rate<1%': 'error_rate' is not a known percentile; known are p50, p90, p95, p99, p99_9, p99_99 and error_rate",
        ),
        (["first_token.p99<1s"], NO_RESPONSE_TIME),
        (["p99<9s,first_token.p99<1s", "first_token.p99<2s"], "--slo: first_token.p99 has two limits; give one"),
        (["error_rate<1%"], NO_RESPONSE_TIME),
        (["p99<5ms,error_rate<1%,error_rate<2%"], "--slo: error_rate has two limits; give one"),
    ],
)
def test_an_invalid_slo_is_refused(texts, message):
    with pytest.raises(UsageError) as caught:
        parse_slo(texts)
    assert str(caught.value) == message


def test_a_demand_needs_its_unit():
    assert parse_demand_per_s("6000/m") == 100
    for text, message in (("1000", "the unit is missing"), ("0/s", "a rate must be above zero"), ("x/s", "expected a rate")):
        with pytest.raises(UsageError, match=message):
            parse_demand_per_s(text)


def test_prices_have_labels_and_currencies():
    prices = {"": Price(2.5, "$"), "big": Price(4.0, "$"), "small": Price(0.5, "$")}
    assert parse_prices(["$2.50/h", "big=$4/hour", "small=.5 $/h"]) == prices
    assert parse_prices(["workload.batch_size=4, server.threads=2=$3/h"]) == {"workload.batch_size=4, server.threads=2": Price(3.0, "$")}
    assert parse_prices(["2/h", "2.0/h"]) == {"": Price(2.0, "")}
    assert parse_prices(["a=$1,250.50/h", "b=10,000 $/h"]) == {"a": Price(1250.5, "$"), "b": Price(10_000.0, "$")}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["2.50"], "--price '2.50': expected the price of a replica per hour, with its unit, such as 2.50/h or batch=$2.50/h"),
        (["2.50/month"], "with its unit"),
        (["1,5/h"], "--price '1,5/h': expected the price of a replica"),
        (["=2/h"], "--price '=2/h': expected the price of a replica"),
        (["$0/h"], "--price '$0/h': a price must be above zero"),
        (["a=$2/h", "a=$3/h"], r"--price: a is 2 $/h and 3 $/h; give one"),
        (["$2/h", "$3/h"], "--price: the general price is 2 $/h and 3 $/h; give one"),
        (["a=$2/h", "b=2 EUR/h"], "--price: the prices must be in one currency, found 2 $/h and 2 EUR/h"),
    ],
)
def test_invalid_and_contradictory_prices_are_refused(texts, message):
    with pytest.raises(UsageError) as caught:
        parse_prices(texts)
    assert message in str(caught.value)


def test_shares_and_powers_have_their_units():
    assert parse_headroom("30%", "--headroom") == 0.3
    assert parse_power_w("0.3kW") == 300
    assert parse_headroom("0", "--headroom") == 0.0
    for text, message in (
        ("0.3", "the unit is missing; write 30%"),
        ("30", "the unit is missing; write 30%"),
        ("100%", "must be below 100%"),
    ):
        with pytest.raises(UsageError, match=message):
            parse_headroom(text, "--headroom")
    with pytest.raises(UsageError):
        parse_power_w("60")


def test_lead_times_are_days_or_weeks():
    assert [parse_lead_time_days(text) for text in ("6w", "45d", " 1 w ")] == [42, 45, 7]
    for text in ("6", "0d", "6 months", "-1d", "1.5w", ""):
        with pytest.raises(UsageError, match=r"--lead-time .*: expected days or weeks above zero, such as 45d or 6w"):
            parse_lead_time_days(text)


def test_peaks_are_sorted_by_day():
    text = "\ufeffregion, date ,peak_per_s\neu,2026-01-02,20.5\n\neu,2026-01-01,10\n"
    assert parse_peaks(text, "p.csv") == (("2026-01-01", 10.0), ("2026-01-02", 20.5))


def test_the_day_of_a_peak_is_the_local_one_whatever_the_offset_from_utc():
    """Midnight of central European time is the day before in UTC; the clocks change on 2026-03-29."""
    text = "date,peak_per_s\n2026-03-29T00:00:00+01:00,1\n2026-03-30T00:00:00+02:00,2\n2026-03-31 23:30,3\n"
    assert parse_peaks(text, "p.csv") == (("2026-03-29", 1.0), ("2026-03-30", 2.0), ("2026-03-31", 3.0))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "p.csv: expected a header with the columns date and peak_per_s, found nothing"),
        ("date,peak_per_s\n2026-01,100\n", "p.csv:2: expected a date such as 2026-01-31 and a number, found '2026-01, 100'"),
        ("date,peak_per_s\n2026-02-30,100\n", "p.csv:2: expected a date such as 2026-01-31"),
        ("date,date,peak_per_s\n2026-01-01,2026-01-02,100\n", "p.csv: the column date appears twice; give it once"),
        ("date,peak\n", "p.csv: expected a header with the columns date and peak_per_s, found date, peak"),
        ("date;peak_per_s\n2026-01-01;1\n", "peak_per_s, found date;peak_per_s; separate columns by commas"),
        ("date,peak_per_s\n2026-01-01,x\n", "p.csv:2: expected a date such as 2026-01-31 and a number, found '2026-01-01, x'"),
        ("date,peak_per_s\n2026-01-01,0\n", "p.csv:2: a peak must be above zero, and at most 1e+12/s, found 0"),
        ("date,peak_per_s\n2026-01-01,1e300\n", "p.csv:2: a peak must be above zero, and at most 1e+12/s, found 1e300"),
        ("x" * 200_000, "p.csv: cannot be read as CSV: field larger than field limit"),
        ("date,peak_per_s\n9999-12-31,1\n", "p.csv:2: a day lies in the years 1970 to 2199, found 9999-12-31"),
        ("date,peak_per_s\n292277026596-12-04,1\n", "p.csv:2: "),
        ("date,peak_per_s\n2026-01-01\n", "p.csv:2: expected a date"),
        ("date,peak_per_s\n2026-01-01,1\n2026-01-01,2\n", "p.csv:3: 2026-01-01 appears twice; give one peak per day"),
    ],
)
def test_an_invalid_csv_of_peaks_is_refused(text, message):
    with pytest.raises(UsageError) as caught:
        parse_peaks(text, "p.csv")
    assert message in str(caught.value)
