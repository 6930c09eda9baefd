"""The `traces` section of a scenario: sampled requests, whose time in the server is told by the spans that it reports."""

import re
from typing import Annotated, Self

import pydantic
from pydantic import AfterValidator, Field

from perfkit.scenario.section import OneOrMoreTexts, Rate, Section, Share, Text

DEFAULT_SAMPLE_PER_S = 100.0
_LISTEN = re.compile(r"(?P<host>[^\s:/\[\]]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")


def _check_listen(text: str) -> str:
    match = _LISTEN.fullmatch(text)
    if not match or not 0 < int(match["port"]) <= 65_535:  # a server must know the port: none that is free
        raise ValueError(f"expected a host and a port, such as 127.0.0.1:4318, found {text!r}")
    return text


class Traces(Section):
    """Requests chosen at random carry a `traceparent` header, and the server's spans of them (OpenTelemetry) tell where their time went."""

    listen: Annotated[Text, AfterValidator(_check_listen)] | None = None
    """The host and port at which perfkit receives spans by OTLP over HTTP; by default, for the bundled server, a free port."""
    files: Annotated[tuple[Text, ...], OneOrMoreTexts] = ()
    """In place of `listen`: files of OTLP JSON lines that a collector writes while the load is sent, or trace files of Triton, by name or pattern."""
    sample_per_s: Rate | None = Field(default=None, alias="sample")
    """The number of requests to trace per second; by default 100/s, unless `share` is given."""
    share: Share | None = Field(default=None, gt=0)
    """In place of `sample`: the share of the requests to trace."""

    @pydantic.model_validator(mode="after")
    def _has_one_source_and_one_rate(self) -> Self:
        if self.sample_per_s is not None and self.share is not None:
            raise ValueError("sample and share exclude each other: remove one")
        if self.listen is not None and self.files:
            raise ValueError("listen and files exclude each other: remove one")
        return self

    @property
    def listen_at(self) -> tuple[str, int] | None:
        """The host and port of `listen`."""
        if self.listen is None:
            return None
        host, port = self.listen.rsplit(":", 1)
        return host.strip("[]"), int(port)

    @property
    def rate_per_s(self) -> float | None:
        """The requests to trace per second; None if a share is given."""
        return None if self.share is not None else self.sample_per_s or DEFAULT_SAMPLE_PER_S
