"""The metrics of a server's stages, and the form of event streams, as a scenario gives them."""

import pydantic
import pytest

from perfkit.scenario.model import Scenario

PLAIN = {"name": "x", "target": {"url": "http://h", "model": "m"}, "load": {"closed": {"concurrency": 1}}}


def test_stages_are_those_that_the_scenario_names():
    assert Scenario.model_validate(PLAIN).metrics.stages == {}
    given = {"queue": "my:queue_ms", "total": "all_seconds", "names": ["x*"]}
    assert Scenario.model_validate({**PLAIN, "metrics": given}).metrics.stages == {"queue": "my:queue_ms", "total": "all_seconds"}


@pytest.mark.parametrize("name", ["queue_*", "queue_bucket", "queue_sum", "queue_count", "queue time"])
def test_a_stage_has_the_name_of_one_whole_metric(name):
    with pytest.raises(pydantic.ValidationError, match=r"expected"):
        Scenario.model_validate({**PLAIN, "metrics": {"queue": name}})


def test_with_the_bodies_of_infer_event_streams_take_batches_outputs_and_checks():
    free = {
        "workload": {"batch_size": 2, "outputs": [{"name": "y"}]},
        "check": {"outputs": {"y": {"value": 1}}},
        "slo": {"p99": "1s", "wrong_answers": "1%"},
    }
    with pytest.raises(pydantic.ValidationError, match="generate_stream takes no batches"):
        Scenario.model_validate({**PLAIN, **free, "stream": {}})
    assert Scenario.model_validate({**PLAIN, **free, "stream": {"body": "infer"}}).stream is not None
    for section, words in (({"sequences": {}}, "neither sequences"), ({"shared_memory": "system"}, "shared memory")):
        with pytest.raises(pydantic.ValidationError, match=words):
            Scenario.model_validate({**PLAIN, **section, "stream": {"body": "infer"}})
