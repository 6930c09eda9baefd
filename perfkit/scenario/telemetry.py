"""The `metrics` and `gpu` sections of a scenario: what is sampled besides the requests."""

import re
import urllib.parse
from typing import Annotated

from pydantic import AfterValidator, Field

from perfkit.scenario.section import Duration, OneOrMoreTexts, Rate, Section, Text
from perfkit.target.address import redacted_url
from perfkit.units import write_duration_ns

_SHORTEST_INTERVAL_NS = 10_000_000
_METRIC_NAME = re.compile(r"[A-Za-z0-9_:*]+")


def _check_url(url: str) -> str:
    try:
        parts = urllib.parse.urlsplit(url)
        is_page = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_page = False
    if not is_page:
        raise ValueError(f"expected an http:// or https:// URL, such as http://127.0.0.1:8002/metrics, found {redacted_url(url)!r}")
    return url


def _check_name(name: str) -> str:
    if not _METRIC_NAME.fullmatch(name):
        raise ValueError(f"expected a metric's name, in which * stands for any characters, found {name!r}")
    return name


def _check_interval(interval_ns: int) -> int:
    if interval_ns < _SHORTEST_INTERVAL_NS:
        raise ValueError(f"expected at least {write_duration_ns(_SHORTEST_INTERVAL_NS)}, found {write_duration_ns(interval_ns)}")
    return interval_ns


MetricsUrl = Annotated[Text, AfterValidator(_check_url)]


class Metrics(Section):
    """Additional Prometheus pages, such as that of a DCGM exporter, and how all pages are read."""

    url: Annotated[tuple[MetricsUrl, ...], OneOrMoreTexts] = ()
    """Prometheus pages to sample."""
    names: tuple[Annotated[Text, AfterValidator(_check_name)], ...] = ()
    """Metrics to store besides `nv_*` and `DCGM_FI_*`; `*` stands for any characters."""
    interval_ns: Annotated[Duration, AfterValidator(_check_interval)] = Field(default=1_000_000_000, alias="interval")
    """The time between two readings of a page."""


class Gpu(Section):
    """Sampling of this machine's GPUs through their driver, if the target is local."""

    sample_rate_per_s: Rate = Field(default=20.0, alias="sample_rate", le=1000)
    """The maximum rate; values that change less often are sampled less often."""
    idle_ns: Duration = Field(default=2_000_000_000, alias="idle", le=8_000_000_000)
    """How long the GPUs' idle power is measured before the run; 0s turns this off."""
