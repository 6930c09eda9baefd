"""The space of a tune: which configurations its keys and values stand for."""

import json
from typing import Any

import pytest

from perfkit.errors import UsageError
from perfkit.gate.tune.moves import SearchSpace
from perfkit.gate.tune.space import (
    candidates_of_command,
    candidates_of_config,
    default_space,
    default_space_of,
    is_same_config,
    parse_space,
    present_value,
)

CONFIG: dict[str, Any] = {
    "name": "m",
    "max_batch_size": 8,
    "instance_group": [{"name": "m_0", "kind": "KIND_CPU", "count": 2}],
    "parameters": {"a": {"string_value": "1"}},
}
BATCHING_DELAY = "dynamic_batching.max_queue_delay_microseconds"
BATCHING = {"dynamic_batching": ("off", "on"), BATCHING_DELAY: ("0", "100")}


def test_the_present_configuration_is_the_first_candidate_as_the_server_wrote_it():
    text = json.dumps(CONFIG, indent=3)
    first, *others = candidates_of_config({"m": text}, {"instance_group.count": ("1", "2", "4")})
    assert first.configs["m"] == text
    assert first.title == "instance_group.count 2"
    assert [json.loads(one.configs["m"])["instance_group"][0]["count"] for one in others] == [1, 4]
    assert [one.number for one in (first, *others)] == [0, 1, 2]


def test_a_delay_without_batching_is_no_configuration_of_its_own():
    candidates = candidates_of_config({"m": json.dumps(CONFIG)}, BATCHING)
    found = [json.loads(one.configs["m"]).get("dynamic_batching") for one in candidates]
    assert found == [None, {"max_queue_delay_microseconds": 0}, {"max_queue_delay_microseconds": 100}]
    assert candidates[0].title == "dynamic_batching off"


def test_only_the_given_keys_change():
    space = {"parameters.a": ("2",), "parameters.b": ("x",), "max_batch_size": ("16",), "optimization.eager_batching": ("true",)}
    _, changed = candidates_of_config({"m": json.dumps(CONFIG)}, space)
    expected = {
        **CONFIG,
        "max_batch_size": 16,
        "parameters": {"a": {"string_value": "2"}, "b": {"string_value": "x"}},
        "optimization": {"eager_batching": True},
    }
    assert json.loads(changed.configs["m"]) == expected
    assert changed.values == {"parameters.a": "2", "parameters.b": "x", "max_batch_size": "16", "optimization.eager_batching": "true"}


def test_a_key_that_no_configuration_has_is_refused_with_the_nearest():
    with pytest.raises(UsageError, match="did you mean instance_group"):
        candidates_of_config({"m": json.dumps(CONFIG)}, {"instance_groups.count": ("1", "2")})


def test_every_instance_group_gets_the_count():
    groups = {"instance_group": [{"count": 1, "gpus": [0]}, {"count": 2, "gpus": [1]}]}
    first, second = candidates_of_config({"m": json.dumps(groups)}, {"instance_group.count": ("3",)})
    assert first.title == "instance_group.count 1+2"
    assert json.loads(second.configs["m"])["instance_group"] == [{"count": 3, "gpus": [0]}, {"count": 3, "gpus": [1]}]


@pytest.mark.parametrize(
    ("config", "cpus", "space"),
    [
        (
            CONFIG,
            4,
            {
                "instance_group.count": ("1", "2", "4"),
                "dynamic_batching": ("off", "on"),
                "dynamic_batching.max_queue_delay_microseconds": ("0", "100", "500", "2000"),
            },
        ),
        ({**CONFIG, "max_batch_size": 0}, 16, {"instance_group.count": ("1", "2", "4", "8")}),
        ({**CONFIG, "max_batch_size": 0}, 1, {"instance_group.count": ("1", "2")}),
        ({**CONFIG, "sequence_batching": {}}, 2, {"instance_group.count": ("1", "2")}),
        ({"max_batch_size": 0, "instance_group": [{"kind": "KIND_GPU", "count": 1}]}, 1, {"instance_group.count": ("1", "2", "4")}),
    ],
)
def test_the_default_space_follows_from_the_configuration(config, cpus, space):
    assert default_space(config, cpus) == space


def test_a_configuration_without_anything_to_vary_says_so():
    with pytest.raises(UsageError, match="neither instances nor batches"):
        default_space({"instance_group": [{"kind": "KIND_MODEL"}]}, 4)


ENSEMBLE: dict[str, dict[str, Any]] = {
    "e": {"platform": "ensemble", "ensemble_scheduling": {"step": [{"model_name": "a"}, {"model_name": "a.b"}]}},
    "a": CONFIG,
    "a.b": {**CONFIG, "max_batch_size": 0},
}


def test_the_keys_of_an_ensemble_belong_to_the_member_whose_name_they_begin_with():
    texts = {model: json.dumps(config) for model, config in ENSEMBLE.items()}
    space = {"a.instance_group.count": ("2", "4"), "a.b.instance_group.count": ("3",)}
    candidates = candidates_of_config(texts, space)
    assert [one.title for one in candidates] == [
        f"a.instance_group.count {first}, a.b.instance_group.count {second}" for first, second in ((2, 2), (2, 3), (4, 3))
    ]
    assert candidates[0].configs == {"a": texts["a"], "a.b": texts["a.b"]}
    assert candidates[1].configs["a"] == texts["a"], "byte for byte where nothing changes"
    assert json.loads(candidates[2].configs["a.b"])["instance_group"][0]["count"] == 3


def test_the_default_space_of_an_ensemble_is_that_of_its_members():
    found = default_space_of(ENSEMBLE, 4)
    assert found == {f"{model}.{key}": values for model in ("a", "a.b") for key, values in default_space(ENSEMBLE[model], 4).items()}
    assert default_space_of({"a": CONFIG}, 4) == default_space(CONFIG, 4)
    with pytest.raises(UsageError, match="the ensemble's members"):
        default_space_of({"e": ENSEMBLE["e"], "a": {"instance_group": [{"kind": "KIND_MODEL"}]}}, 4)


def test_places_of_a_command_and_keys_of_a_configuration_make_one_space():
    space = {"instance_group.count": ("2", "4"), "threads": ("1", "3")}
    candidates = candidates_of_config({"m": json.dumps(CONFIG)}, space, "serve {repository} {port} {threads}")
    assert [(one.title, one.command) for one in candidates] == [
        (f"instance_group.count {count}, threads {threads}", f"serve {{repository}} {{port}} {threads}")
        for count, threads in ((2, 1), (2, 3), (4, 1), (4, 3))
    ]


def test_a_command_gets_the_values_and_keeps_its_ports():
    candidates = candidates_of_command("serve --threads {threads} --http-port {port}", {"threads": ("1", "4")})
    assert [one.command for one in candidates] == ["serve --threads 1 --http-port {port}", "serve --threads 4 --http-port {port}"]


@pytest.mark.parametrize(
    ("command", "space", "sentence"),
    [
        ("serve {port} {threads}", {}, "{threads} has no values"),
        ("serve {port}", {"threads": ("1", "2")}, "write {threads} in it"),
        ("serve {port}", {}, "nothing varies"),
        ("serve {port} {threads}", {"threads": ("1",)}, "its only configuration is the present one"),
        (
            "serve {a} {b}",
            {"a": tuple(map(str, range(81))), "b": tuple(map(str, range(80)))},
            "6,480 configurations, and 6,400 are the most",
        ),
        (
            "serve {a} {b}",
            {"a": tuple(map(str, range(60))), "b": tuple(map(str, range(6)))},
            "65 configurations differ from the present one by one key",
        ),
    ],
)
def test_a_command_without_a_space_is_refused(command, space, sentence):
    with pytest.raises(UsageError) as error:
        candidates_of_command(command, space)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    "texts", [["count"], ["count="], ["=1"], ["count=1,,2"], ["count=1,1"], ["count=1", "count=2"], ["instance group=1"]]
)
def test_a_space_that_cannot_be_read_is_refused(texts):
    with pytest.raises(UsageError, match="--space"):
        parse_space(texts)


def test_a_space_is_read_in_its_order():
    assert list(parse_space(["b=2, 1", "a.c=off,on"]).items()) == [("b", ("2", "1")), ("a.c", ("off", "on"))]


def test_the_present_value_of_a_key_that_is_not_there_is_empty():
    assert present_value(CONFIG, "dynamic_batching.max_queue_delay_microseconds") == ""
    assert present_value(CONFIG, "parameters.a") == "1"
    assert present_value(CONFIG, "max_batch_size") == "8"


def test_the_order_of_keys_makes_no_other_configuration():
    assert is_same_config('{"a": 1, "b": 2}', '{"b": 2, "a": 1}')
    assert not is_same_config('{"a": [1, 2]}', '{"a": [2, 1]}')


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        ("instance_group.cuont", "instance_group of a model's configuration has no cuont; did you mean count"),
        ("dynamic_batching.max_queue_delay", "dynamic_batching of a model's configuration has no max_queue_delay"),
        ("optimization.input_pinned_memory.enabled", "optimization.input_pinned_memory of a model's configuration has no enabled"),
    ],
)
def test_a_part_of_a_key_that_triton_does_not_have_is_refused(key, sentence):
    with pytest.raises(UsageError) as caught:
        candidates_of_config({"m": json.dumps(CONFIG)}, {key: ("1", "2")})
    assert sentence in str(caught.value)


def test_a_key_that_the_present_configuration_has_is_taken():
    config = {**CONFIG, "instance_group": [{"count": 2, "novel": 1}]}
    assert len(candidates_of_config({"m": json.dumps(config)}, {"instance_group.novel": ("1", "2")})) == 2


def test_a_number_as_text_is_the_same_value():
    config = {**CONFIG, "dynamic_batching": {"max_queue_delay_microseconds": "100"}}
    candidates = candidates_of_config({"m": json.dumps(config)}, {"dynamic_batching.max_queue_delay_microseconds": ("100", "500")})
    assert [one.title for one in candidates] == [f"dynamic_batching.max_queue_delay_microseconds {delay}" for delay in (100, 500)]
    assert is_same_config('{"a": ["100"]}', '{"a": [100]}')
    assert not is_same_config('{"a": "0100"}', '{"a": 100}')


def test_a_large_space_has_the_present_value_of_each_key():
    space = {"instance_group.count": ("1", "4", "8"), "parameters.a": ("3", "4", "5", "6"), "parameters.b": tuple("vwxyz"), **BATCHING}
    candidates = candidates_of_config({"m": json.dumps(CONFIG)}, space)
    assert len(candidates) == 4 * 5 * 6 * 3  # with the present count, a and no b; batching is off, or on with one of two delays
    star = SearchSpace([one.values for one in candidates]).star
    assert {key: sum(one == key for one in star.values()) for key in space if key in star.values()} == {
        "instance_group.count": 3, "parameters.a": 4, "parameters.b": 5, "dynamic_batching": 2,
    }  # fmt: skip
    changed = json.loads(candidates[next(number for number, key in star.items() if key == "parameters.b")].configs["m"])
    assert changed["parameters"].pop("b") == {"string_value": "v"}
    assert changed == CONFIG


DELAYS = ("0", "100", "500", "2000")


@pytest.mark.parametrize("delay", [{}, {"max_queue_delay_microseconds": "300"}])
def test_a_large_space_has_the_present_delay_so_that_each_key_varies_from_it(delay):
    config = {**CONFIG, "dynamic_batching": delay}
    space = {**BATCHING, BATCHING_DELAY: DELAYS, "instance_group.count": tuple(map(str, range(1, 13)))}
    candidates = candidates_of_config({"m": json.dumps(config)}, space)
    found = SearchSpace([one.values for one in candidates])
    star = list(found.star.values())
    assert found.first() == (0, *found.star)
    assert {key: star.count(key) for key in star} == {"instance_group.count": 11, BATCHING_DELAY: 4, "dynamic_batching": 1}


def test_the_star_of_a_model_without_batching_has_every_key_of_the_default_space():
    config = {**CONFIG, "instance_group": [{"kind": "KIND_CPU", "count": 1}]}
    space = default_space(config, 8)
    candidates = candidates_of_config({"m": json.dumps(config)}, space)
    found = SearchSpace([one.values for one in candidates])
    first = found.first(at_once=3)
    assert [candidates[number].title for number in first] == [
        "instance_group.count 1, dynamic_batching off",
        *(f"instance_group.count 1, dynamic_batching on, {BATCHING_DELAY} {delay}" for delay in DELAYS),
        *(f"instance_group.count {count}, dynamic_batching off" for count in (2, 4)),
    ]
    assert len(found.first(at_once=len(found))) == len(found) == 15
