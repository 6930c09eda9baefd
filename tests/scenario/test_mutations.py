"""Any file either yields a scenario or raises ScenarioError."""

import contextlib
import copy
import pathlib
import tempfile

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from perfkit.errors import ScenarioError
from perfkit.scenario.file import LoadedScenario, read_scenario, scenario_document
from perfkit.scenario.model import Scenario

TEXT = """\
name: example
target: {model: m, url: "http://127.0.0.1:8000/x", version: "1", timeout: 30s, headers: {a: b}}
server: {device: auto, threads: 2, cpus: 0-1}
workload:
  inputs:
    A: {generate: random, shape: [3, 2]}
    B: {value: [1, 2.5, x]}
    C: {file: c.npy}
  outputs: [{name: o, classes: 5}]
load: {closed: {concurrency: [1, 2], think_time: 0s}}
measure: {warmup: 1s, duration: 2s, drain: 3s, cpus: [0]}
"""
SNIPPETS = ["!!int ", "!!binary ", "!!set ", "!!timestamp ", "&a ", "*a", "<<: ", "2001-02-30", "0x", "{", "}", "[", "]", "- ", ": ", "\n", "\t", "'", '"', "null", "~", "\0", "\ud7ff", "9" * 5000]  # fmt: skip
EDITS = st.lists(
    st.tuples(st.integers(0, len(TEXT)), st.integers(0, 6), st.one_of(st.sampled_from(SNIPPETS), st.text(st.characters(exclude_categories=["Cs"]), max_size=3))),
    min_size=1,
    max_size=4,
)  # fmt: skip
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4), st.dates(), st.binary(max_size=3), st.just("1s")
)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "generate", "value", "closed", "open", "name", "1"]) | LEAVES, inner, max_size=3), max_leaves=5)  # fmt: skip


def read(text: str, settings_given=()) -> LoadedScenario | None:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "s.yaml")
        path.write_text(text, encoding="utf-8")
        try:
            return read_scenario(path, settings_given, {})
        except ScenarioError as error:
            lines = str(error).split("\n")
            assert all(line.startswith((f"{path}:", "--set")) for line in lines), lines
            return None


def places(document, path=()):
    """The path of every key and element."""
    items = document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


PLACES = list(places(yaml.safe_load(TEXT)))


def test_the_file_that_is_mutated_is_valid():
    assert read(TEXT) is not None


@given(EDITS)
@example([(0, 0, "\ufeff")])
def test_a_file_with_characters_changed_is_read_or_refused(edits):
    text = TEXT
    for position, removed, added in edits:
        text = text[:position] + added + text[position + removed :]
    loaded = read(text)
    assert loaded is None or isinstance(loaded.scenario, Scenario)


@given(st.sampled_from(PLACES), VALUES | st.just(...))
def test_a_mutated_file_is_refused_or_read_and_written_again(place, value):
    document = parent = copy.deepcopy(yaml.safe_load(TEXT))
    for part in place[:-1]:
        parent = parent[part]
    if value is ...:
        del parent[place[-1]]
    else:
        parent[place[-1]] = value
    loaded = read(yaml.safe_dump(document))
    if loaded is not None:
        assert read(yaml.safe_dump(scenario_document(loaded.scenario))) is not None


@given(st.sampled_from([place for place in PLACES if all(isinstance(part, str) for part in place)]), st.one_of(VALUES.map(yaml.safe_dump), st.sampled_from(SNIPPETS)))  # fmt: skip
def test_an_override_of_any_key_is_accepted_or_refused(place, value):
    with contextlib.suppress(UnicodeEncodeError):
        loaded = read(TEXT, (f"{'.'.join(place)}={value}", f"{'.'.join(place)}.x=1"))
        assert loaded is None or isinstance(loaded.scenario, Scenario)


@pytest.mark.parametrize(
    "text",
    [
        "? [a, b]\n: c\n",
        "? {a: b}\n: c\n",
        "<<: {name: x}\n",
        "null: 1\n",
        "name: !!bool maybe\n",
        "name: !!timestamp x\n",
        "name: !!omap x\n",
    ],
)
def test_odd_keys_and_tags_are_refused(text):
    assert read("target: {model: m}\nload: {closed: {concurrency: 1}}\n" + text) is None
