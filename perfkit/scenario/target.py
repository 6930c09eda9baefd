"""The `target` and `server` parts of a scenario: where load is sent, and the bundled server's options."""

from typing import Annotated, Literal, Self

import pydantic
from pydantic import BeforeValidator, Field

from perfkit.scenario.metrics import MetricsUrl
from perfkit.scenario.part import Count, Cpus, Duration, Part, Text
from perfkit.target.address import Address, Protocol, host_name


def _parse_version(value: object) -> object:
    """Takes `version: 1` without quotes."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class TlsOptions(Part):
    """TLS for `https://` and `grpcs://`: PEM files relative to the scenario's folder; no `ca` means the system's authorities."""

    ca: Text | None = None
    cert: Text | None = None
    key: Text | None = None
    server_name: Annotated[str, Field(strict=True)] = ""
    verify: Annotated[bool, Field(strict=True)] = True

    @pydantic.model_validator(mode="after")
    def _key_with_its_certificate(self) -> Self:
        if self.key and not self.cert:
            raise ValueError("a key needs its certificate: give cert as well")
        return self

    @pydantic.field_validator("server_name")
    @classmethod
    def _is_a_name(cls, name: str) -> str:
        return host_name(name) if name else name


class Target(Part):
    """The server under test; without a `url` perfkit starts the bundled one."""

    url: Text | None = None
    protocols: Annotated[tuple[Protocol, ...], Field(min_length=1)] | None = None
    model: Text
    version: Annotated[str, BeforeValidator(_parse_version, json_schema_input_type=str | int)] = ""
    engine: Literal["wire", "reference"] = "wire"
    timeout_ns: Duration = Field(default=30_000_000_000, alias="timeout", gt=0)
    max_connections: Count | None = None
    streams_per_connection: Count | None = None
    """Requests at a time on one connection; the wire engine's over gRPC alone, 1 where it is left out."""
    headers: dict[str, Annotated[str, Field(strict=True)]] = Field(default_factory=dict)
    tls: TlsOptions | None = None
    metrics_url: MetricsUrl | None = None
    """Where the server tells its metrics, for Prometheus."""
    compression: Literal["none", "gzip", "deflate"] = "none"
    """Of requests, and of answers where the server does as it is asked."""

    @pydantic.field_validator("url")
    @classmethod
    def _readable_url(cls, url: str) -> str:
        Address.parse(url)
        return url

    @pydantic.model_validator(mode="after")
    def _one_way_to_name_it(self) -> Self:
        if self.url and self.protocols:
            raise ValueError(
                "url and protocols exclude each other: protocols are for the bundled server (--set target.protocols=null leaves them out)"
            )
        is_encrypted = self.url is not None and Address.parse(self.url).tls is not None
        if self.tls and not is_encrypted:
            raise ValueError("tls is for targets with an https:// or grpcs:// url")
        if self.tls and not self.tls.verify and self.load_protocols == ("grpc",) and self.engine == "reference":
            raise ValueError(
                "tls.verify: false is not possible over gRPC with engine: reference; "
                "use engine: wire, or give the server's certificate, or its authority's, as tls.ca"
            )
        if self.streams_per_connection is not None and ("grpc" not in self.load_protocols or self.engine == "reference"):
            raise ValueError(
                "streams_per_connection is for gRPC with engine: wire; HTTP/1.1 carries one request at a time, and grpcio decides itself"
            )
        return self

    @property
    def load_protocols(self) -> tuple[Protocol, ...]:
        """The protocols that load is sent over, each its own load points."""
        if self.url:
            return (Address.parse(self.url).protocol,)
        return self.protocols or ("http",)


class Server(Part):
    """Options of the bundled server, where perfkit starts it."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: Count | None = None
    cpus: Cpus | None = None
    synthetic: Text | None = None
    """The law of the model `synthetic`, such as `service=exponential:10ms,servers=2`."""
