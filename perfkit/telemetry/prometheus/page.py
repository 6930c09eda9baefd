"""A page of Prometheus metrics as samples, read with Prometheus' own parser; what it cannot read is passed over."""

import dataclasses
import re
from collections.abc import Iterator, Mapping

from prometheus_client.parser import text_string_to_metric_families

_TYPE = re.compile(r"#\s*TYPE\s+(?P<name>\S+)\s+(?P<kind>\S+)\s*")


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """One line of a page: `kind` is `counter`, `gauge`, `histogram`, `summary`, or `untyped` where the page does not say."""

    name: str
    labels: Mapping[str, str]
    value: float
    kind: str


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """The samples of a page in its order, and how many of its lines could not be read."""

    samples: tuple[Sample, ...]
    passed_over: int


def parse_page(text: str) -> Page:
    """Reads the text format; a broken line costs that line alone."""
    kinds = {found["name"]: found["kind"] for line in text.splitlines() if (found := _TYPE.fullmatch(line.strip()))}
    try:
        return Page(tuple(_samples(text, kinds)), 0)
    except ValueError:
        samples, broken = list[Sample](), 0
        for line in text.splitlines():
            if line.strip() and not line.lstrip().startswith("#"):
                try:
                    samples += _samples(line + "\n", kinds)
                except ValueError:
                    broken += 1
        return Page(tuple(samples), broken)


def _samples(text: str, kinds: Mapping[str, str]) -> Iterator[Sample]:
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            name = one.name
            if name not in kinds and name.endswith("_total") and kinds.get(name.removesuffix("_total")) == "counter":
                name = name.removesuffix("_total")  # the parser names counters as OpenMetrics does, whatever the page calls them
            kind = kinds.get(name) or kinds.get(re.sub(r"_(?:bucket|sum|count)$", "", name)) or "untyped"
            yield Sample(name, dict(one.labels), float(one.value), kind)
