"""Numbers of a scenario are multiplied, and the absurd ones refused, before anything is made of them."""

import pytest

from perfkit.errors import ScenarioError
from perfkit.scenario.file import read_scenario

HEAD = "target: {model: m}\n"
CLOSED = "load: {closed: {concurrency: 1}}\n"
SINE = "load: {{open: {{rate: {rates}, shape: {{sine: {{amplitude: 0.5, period: {period}}}}}}}}}\nmeasure: {{duration: {duration}}}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("load: {closed: {concurrency: 1, think_time: 8785h}}", "load.closed.think_time: a duration is at most 8784h, found '8785h'"),
        ("load: {closed: {concurrency: 1}}\nmeasure: {warmup: 1e90h}", "measure.warmup: a duration is at most 8784h, found '1e90h'"),
        ("load: {closed: {concurrency: 65537}}", "load.closed.concurrency[0]: input should be less than or equal to 65536, found 65537"),
        ("load: {open: {rate: [1, 10000001/s]}}", "load.open.rate[1]: a rate is at most 10,000,000/s, found '10000001/s'"),
        ("load: {open: {rate: 1, max_in_flight: 1048577}}", "load.open.max_in_flight: input should be less than or equal to 1048576"),
        ("load: {search: {slo: {p99: 1s}, max_probes: 10001}}", "load.search.max_probes: input should be less than or equal to 10000"),
        # a result could not have these
        (CLOSED + "workload: {seed: 18446744073709551616}", "workload.seed: input should be less than 18446744073709551616"),
        (CLOSED + "workload: {parameters: {x: -18446744073709551616}}", "workload.parameters.x: expected an integer of up to 64 bits"),
        (
            "load: {closed: {concurrency: [1, 2, 4]}}\nmeasure: {repetitions: 3334}",
            "3 loads × 1 protocols × 3,334 repetitions = 10,002 load points, and 10,000 are the most: reduce measure.repetitions",
        ),
        (
            "load: {open: {rate: 1}}\nmeasure: {repetitions: 1000000}",
            "1 loads × 1 protocols × 1,000,000 repetitions = 1,000,000 load points, and 10,000 are the most",
        ),
        (SINE.format(rates=1, period="1ns", duration="10s"), "1 rates of 2,560,000,000,000 linear pieces together, and 1,000,000 are"),
        (SINE.format(rates="[1, 2]", period="1s", duration="1954s"), "2 rates of 1,000,448 linear pieces together"),
    ],
)
def test_a_number_beyond_its_limit_is_refused(read, text, message):
    with pytest.raises(ScenarioError) as refusal:
        read(HEAD + text)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    "text",
    [
        "load: {closed: {concurrency: 65536, think_time: 8784h}}",
        "load: {open: {rate: 10000000, max_in_flight: 1048576}}\nmeasure: {workers: 1024}",
        "load: {closed: {concurrency: [1, 2]}}\nmeasure: {repetitions: 5000}",
        SINE.format(rates="[1, 2]", period="1s", duration="1953s"),
    ],
)
def test_the_limit_itself_is_allowed(read, text):
    read(HEAD + text)


def test_a_value_of_any_length_makes_a_short_message(tmp_path):
    (tmp_path / "s.yaml").write_text(f"target: {[1] * 30_000}\nload: {{closed: {{concurrency: {['x'] * 30_000}}}}}\n")
    with pytest.raises(ScenarioError) as refusal:
        read_scenario(tmp_path / "s.yaml", (), {})
    text = str(refusal.value)
    assert len(text) < 50_000
    assert "more problems" in text.splitlines()[-1]


def test_a_number_of_any_length_is_refused_in_plain_words(tmp_path):
    (tmp_path / "s.yaml").write_text(f"name: {'9' * 5000}\n")
    with pytest.raises(ScenarioError, match=r"s\.yaml:1: name: not valid YAML: a number of 5,000 characters$"):
        read_scenario(tmp_path / "s.yaml", (), {})
