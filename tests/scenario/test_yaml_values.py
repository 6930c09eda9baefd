"""YAML is held against its limits before it is expanded."""

import tracemalloc

import pytest

from perfkit.errors import ScenarioError
from perfkit.scenario.yaml_values import parse_yaml

MANY = "more than {:,} values, aliases expanded: put large values into files, such as workload.inputs.X.file: x.npy"


def parse(text):
    return parse_yaml(text, (), {}, lambda line: f"s.yaml:{line}")


def refusal(text):
    with pytest.raises(ScenarioError) as refused:
        parse(text)
    return str(refused.value)


def doubled(levels, leaf="[1]"):
    """A list of two lists of two lists …, in as many lines."""
    return "\n".join([f"a0: &a0 {leaf}", *(f"a{level}: &a{level} [*a{level - 1}, *a{level - 1}]" for level in range(1, levels))])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (doubled(60), 17),
        ("\n".join(["- &a [1, 2, 3]", "- &b {x: *a, y: *a}", "- &c [" + "*b, " * 200_000 + "]"]), 3),
    ],
    ids=["aliases of aliases", "aliases"],
)
def test_too_many_values_are_refused_without_being_expanded(text, line):
    tracemalloc.start()
    try:
        assert refusal(text) == f"s.yaml:{line}: {MANY.format(250_000)}"
        assert tracemalloc.get_traced_memory()[1] < 2**20  # and no more than this, however many lines follow
    finally:
        tracemalloc.stop()


@pytest.fixture
def low_limit(monkeypatch):
    """A tenth of the limit on values, which as many values reach sooner."""
    monkeypatch.setattr("perfkit.scenario.yaml_values._MAX_VALUES", 25_000)


@pytest.mark.usefixtures("low_limit")
def test_as_many_values_as_the_limit_are_read():
    # the document, its key and its list are values, too
    assert len(parse("a: [" + "1," * 24_997 + "]")["a"]) == 24_997
    tracemalloc.start()
    try:
        assert refusal("a: [" + "1," * 24_998 + "]") == f"s.yaml:1: {MANY.format(25_000)}"
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.usefixtures("low_limit")
def test_an_alias_counts_as_what_it_stands_for():
    values = "[" + "1, " * 100 + "]"  # with itself 101
    assert len(parse(f"a: &a {values}\nb: [{'*a, ' * 246}]")["b"]) == 246
    assert refusal(f"a: &a {values}\nb: [{'*a, ' * 247}]") == f"s.yaml:2: {MANY.format(25_000)}"


def test_text_is_limited_with_its_aliases_expanded():
    text = f"a: &a '{'x' * 2**20}'\nb: [*a, *a, *a, *a, *a, *a"
    assert len(parse(text + "]")["b"]) == 6
    assert refusal(text + ", *a]") == "s.yaml:2: more than 8.00 MiB of text, aliases expanded: put it into files"


@pytest.mark.parametrize("text", ["[" * 100_000, "- " * 100_000, "{a: " * 100_000], ids=["flow lists", "lists", "mappings"])
def test_depth_is_limited(text):
    assert refusal(text) == "s.yaml:1: not valid YAML: values are nested deeper than 100 levels"


def test_aliases_yield_their_values():
    assert parse("a: &a [1, {b: c}]\nd: *a\ne: &e 5\nf: [*e]") == {"a": [1, {"b": "c"}], "d": [1, {"b": "c"}], "e": 5, "f": [5]}


def test_a_byte_of_the_command_line_that_is_not_utf_8_is_refused():
    assert refusal("a: b\nc: \udcff") == "s.yaml:2: not valid YAML: the character #xdcff is not allowed"
