"""The `metrics` and `gpu` parts of a scenario: what is sampled beside the requests."""

import re
import urllib.parse
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from perfkit.scenario.part import Duration, Part, Rate, Text
from perfkit.target.address import redacted_url
from perfkit.units import write_duration_ns

_SHORTEST_NS = 10_000_000
_NAME = re.compile(r"[A-Za-z0-9_:*]+")


def _check_url(url: str) -> str:
    try:
        parts = urllib.parse.urlsplit(url)
        is_page = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_page = False
    if not is_page:
        raise ValueError(
            f"expected the http:// or https:// URL of a page, such as http://127.0.0.1:8002/metrics, found {redacted_url(url)!r}"
        )
    return url


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"expected the name of a metric, * for any part of one, found {name!r}")
    return name


def _check_interval(interval_ns: int) -> int:
    if interval_ns < _SHORTEST_NS:
        raise ValueError(f"expected at least {write_duration_ns(_SHORTEST_NS)}, found {write_duration_ns(interval_ns)}")
    return interval_ns


MetricsUrl = Annotated[Text, AfterValidator(_check_url)]
_Urls = Annotated[
    tuple[MetricsUrl, ...],
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value, json_schema_input_type=str | list[str]),
]


class Metrics(Part):
    """Pages for Prometheus beside the target's own, such as that of a DCGM exporter, and how all of them are read."""

    url: _Urls = ()
    names: tuple[Annotated[Text, AfterValidator(_check_name)], ...] = ()
    """What is kept besides `nv_*` and `DCGM_FI_*`; `*` stands for any part of a name."""
    interval_ns: Annotated[Duration, AfterValidator(_check_interval)] = Field(default=1_000_000_000, alias="interval")


class Gpu(Part):
    """GPUs of this machine, through their driver, where the target is this machine."""

    sample_rate_per_s: Rate = Field(default=20.0, alias="sample_rate", le=1000)
    """At most: what changes less often is asked less often."""
    idle_ns: Duration = Field(default=2_000_000_000, alias="idle", le=8_000_000_000)
    """For how long the GPUs' power is measured before the run, where there are any; 0s for not at all."""
