"""Trace settings: the texts and choices are those of a real Triton 2.51 started with the same options."""

import pytest

from perfkit.errors import ProtocolError
from server_stub.tracing.trace_config import parse_trace_config
from server_stub.tracing.trace_settings import TraceSettings

URL = "http://127.0.0.1:48305/v1/traces"


@pytest.fixture
def settings():
    pairs = ["mode=opentelemetry", f"opentelemetry,url={URL}", "opentelemetry,bsp_schedule_delay=200", "level=TIMESTAMPS", "rate=1000000"]
    return TraceSettings(parse_trace_config(pairs))


def test_the_document_is_tritons(settings):
    assert settings.document("simple") == {
        "trace_level": ["TIMESTAMPS"],
        "trace_rate": "1000000",
        "trace_count": "-1",
        "trace_mode": "opentelemetry",
        "url": URL,
        "bsp_schedule_delay": "200",
        "bsp_max_export_batch_size": "512",
        "bsp_max_queue_size": "2048",
    }


def chosen(settings, forced, model="simple"):
    """The numbers of the requests that are traced."""
    return [number for number, is_forced in enumerate(forced) if settings.sampler(model).sample(is_forced=is_forced)]


def test_the_rate_chooses_every_nth_until_the_count_is_used_up(settings):
    settings.update("", {"trace_rate": "3", "trace_count": "2"})
    assert chosen(settings, [False] * 10) == [2, 5]
    assert settings.document()["trace_count"] == "0"


def test_requests_with_a_parent_count_for_the_rate_but_not_for_the_count(settings):
    settings.update("", {"trace_rate": "3", "trace_count": "-1"})
    assert chosen(settings, [True, False, False, True, False, False, False, False]) == [0, 2, 3, 5]
    settings.update("", {"trace_rate": "1000000", "trace_count": "2"})
    assert chosen(settings, [True] * 4) == [0, 1, 2, 3]
    assert settings.document()["trace_count"] == "2"


def test_a_model_overrides_the_server_field_by_field(settings):
    settings.update("", {"trace_level": ["OFF"]})
    assert not settings.is_on
    settings.update("simple", {"trace_level": ["TIMESTAMPS"], "trace_rate": "2"})
    assert settings.is_on
    assert chosen(settings, [True, False]) == [0, 1]
    assert chosen(settings, [True], model="other") == []
    assert settings.update("simple", {"trace_level": None})["trace_rate"] == "2"
    assert chosen(settings, [True]) == []


def test_none_restores_what_the_server_was_started_with(settings):
    settings.update("", {"trace_level": ["TENSORS"], "trace_rate": "1", "trace_count": "2"})
    assert settings.document()["trace_level"] == ["TENSORS"]
    reset = settings.update("", {"trace_level": None, "trace_rate": None, "trace_count": None})
    assert (reset["trace_level"], reset["trace_rate"], reset["trace_count"]) == (["TIMESTAMPS"], "1000000", "-1")


@pytest.mark.parametrize("given", [{"trace_mode": "triton"}, {"url": "http://x"}, {"trace_level": ["X"]}, {"trace_level": []}, {"foo": 1}])
def test_what_clients_cannot_change_is_ignored(settings, given):
    before = settings.document()
    assert settings.update("", given) == before


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"trace_rate": "0"}, "Attempting to set invalid trace setting :sample rate must be non-zero"),
        ({"trace_count": "0"}, "Attempting to set invalid trace setting :"),
        ({"trace_rate": "x"}, "Unable to parse 'trace_rate', got: x"),
        ({"trace_count": "-5"}, "Unable to parse 'trace_count'. Expecting value >= -1, got:-5"),
        ({"log_frequency": "x"}, "Unable to parse 'log_frequency', got: x"),
        ({"trace_level": ["OFF", "TIMESTAMPS"]}, "Expect only one trace level 'OFF' is specified"),
        ({"trace_level": "OFF"}, "attempt to access JSON non-array as array"),
        ({"trace_rate": 5}, "attempt to access JSON non-string as string"),
        ({"trace_file": None}, "trace file location can not be updated through network protocol"),
    ],
)
def test_invalid_changes_are_refused_and_change_nothing(settings, given, text):
    before = settings.document()
    with pytest.raises(ProtocolError) as error:
        settings.update("", given)
    assert str(error.value) == text
    assert settings.document() == before
