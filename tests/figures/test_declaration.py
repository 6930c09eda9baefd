"""Figures follow from their declarations: names are recorded, places are unique, and pooling does what a field declares."""

import dataclasses
import pathlib
from typing import Annotated

from perfkit.figures.declaration import (
    KEY,
    Figure,
    declared,
    figures_of,
    largest,
    mean,
    mean_of_all,
    own_figures,
    pooled,
    smallest,
    total,
    total_known,
    union,
    value_at,
)
from perfkit.result.model import Point

ROOT = pathlib.Path(__file__).parents[2]
FIGURES = declared(Point)


@dataclasses.dataclass(frozen=True)
class Part:
    fact: str
    share: Annotated[float | None, Figure("share", pooled=mean)] = None
    bytes_in_all: Annotated[int | None, Figure("bytes", pooled=total)] = None
    highest: Annotated[int | None, Figure("highest", pooled=largest)] = None
    stream_time_ns: Annotated[float | None, Figure("time", "ns", "streams", KEY)] = None


def test_windows_are_pooled_as_each_field_declares():
    first, second = Part("a", 0.2, 10, 3), Part("b", 0.8, 30, 7)
    assert pooled([(first, 1), (second, 3)]) == Part("a", (0.2 + 3 * 0.8) / 4, 40, 7)
    assert pooled([(second, 5)]) is second


def test_what_is_unknown_in_one_window_is_left_out_or_makes_the_whole_unknown():
    values = [(None, 2), (4.0, 1), (1.0, 3)]
    assert (mean(values), mean_of_all(values), total(values), total_known(values)) == (1.75, None, None, 5.0)
    assert (largest(values), smallest(values), largest([(None, 1)]), mean([])) == (4.0, 1.0, None, None)
    assert union([(("b", "a"), 1), (("a", "c"), 1)]) == ("b", "a", "c")


def test_a_figure_is_recorded_under_its_key_unless_it_says_otherwise():
    assert own_figures(Part)["stream_time_ns"][0].recorded == "stream_time"
    by_path = {one.path: one for one in FIGURES}
    assert by_path["response_gap_ns"].figure.recorded == "response_gap"
    assert by_path["sequences.ended"].figure.recorded == "sequences_ended"
    assert by_path["server_cpu.cpus"].kind is float


def test_each_recorded_name_is_recorded_somewhere():
    sources = "".join(
        path.read_text(encoding="utf-8") for part in ("recorder", "workers", "load") for path in (ROOT / "perfkit" / part).glob("*.py")
    )
    names = {one.figure.recorded for one in FIGURES if one.figure.recorded}
    assert {name for name in names if f'"{name}"' not in sources} == set()


def test_no_two_figures_have_the_same_place():
    for place in ("path", "column", "log_tag", "metric"):
        named = [value for one in FIGURES if (value := one.path if place == "path" else getattr(one.figure, place))]
        assert len(named) == len(set(named)), place


def test_those_of_a_subject_stand_together_counts_before_times():
    assert [one.path for one in figures_of(Point, "streams")] == [
        "responses.per_s", "responses.without_response", "responses.cancelled",
        "first_response_time_ns", "response_gap_ns", "stream_time_ns",
    ]  # fmt: skip


def test_a_path_through_a_missing_part_has_no_value():
    part = Part("a", 0.5)
    assert (value_at(part, "share"), value_at(part, "highest.real"), value_at(part, "")) == (0.5, None, part)
