"""The `target` and `server` sections of a scenario: where load is sent, and the bundled server's options."""

from typing import Annotated, Literal, Self

import pydantic
from pydantic import BeforeValidator, Field

from perfkit.scenario.section import Count, Cpus, Duration, Section, Size, Text
from perfkit.scenario.telemetry import MetricsUrl
from perfkit.target.address import Address, WireProtocol, host_name


def _parse_version(value: object) -> object:
    """Accepts `version: 1` without quotes."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class TlsOptions(Section):
    """TLS for `https://` and `grpcs://`. Paths of PEM files are relative to the scenario's folder; the default `ca` is the system's."""

    ca: Text | None = None
    cert: Text | None = None
    key: Text | None = None
    server_name: Annotated[str, Field(strict=True)] = ""
    verify: Annotated[bool, Field(strict=True)] = True

    @pydantic.model_validator(mode="after")
    def _has_a_certificate_for_the_key(self) -> Self:
        if self.key and not self.cert:
            raise ValueError("a key needs its certificate: give cert")
        return self

    @pydantic.field_validator("server_name")
    @classmethod
    def _is_a_host_name(cls, name: str) -> str:
        return host_name(name) if name else name


class Target(Section):
    """The server under test; without `url` or `urls` perfkit starts the bundled server."""

    url: Text | None = None
    urls: Annotated[dict[WireProtocol, Text], Field(min_length=1)] | None = None
    """In place of `url`: one server's URL for each protocol, `{http: URL, grpc: URL}`. Each protocol has its own load points."""
    protocols: Annotated[tuple[WireProtocol, ...], Field(min_length=1)] | None = None
    """In place of `url`: the protocols of the bundled server; the default is `[http]`."""
    model: Text
    version: Annotated[str, BeforeValidator(_parse_version, json_schema_input_type=str | int)] = ""
    engine: Literal["wire", "reference"] = "wire"
    timeout_ns: Duration = Field(default=30_000_000_000, alias="timeout", gt=0)
    max_connections: Count | None = None
    streams_per_connection: Count | None = None
    """Concurrent requests on one connection, 1 by default; only gRPC with the wire engine supports more."""
    max_answer_bytes: Annotated[Size, Field(ge=1 << 20)] | None = Field(default=None, alias="max_answer")
    """The length from which an answer is refused; by default four times the first answer's, and 1 MiB, but at most 32 MiB."""
    headers: dict[str, Annotated[str, Field(strict=True)]] = Field(default_factory=dict)
    tls: TlsOptions | None = None
    metrics_url: MetricsUrl | None = None
    """The server's Prometheus page."""
    compression: Literal["none", "gzip", "deflate"] = "none"
    """The compression of requests, and of answers if the server supports it."""

    @pydantic.field_validator("url")
    @classmethod
    def _is_valid_url(cls, url: str) -> str:
        Address.parse(url)
        return url

    @pydantic.field_validator("urls")
    @classmethod
    def _fit_their_protocols(cls, urls: dict[WireProtocol, str]) -> dict[WireProtocol, str]:
        for protocol, url in urls.items():
            if (found := Address.parse(url).protocol) != protocol:
                raise ValueError(f"{protocol}: this URL is for {found}: swap the URLs, or correct the scheme")
        return urls

    @pydantic.model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.url and self.urls:
            raise ValueError("url and urls exclude each other: move the URL into urls, such as {http: URL, grpc: URL}")
        if self.urls_by_protocol and self.protocols:
            raise ValueError(
                f"{'url' if self.url else 'urls'} and protocols exclude each other, because protocols are for the bundled server: "
                "remove one (--set target.protocols=null)"
            )
        is_encrypted = any(Address.parse(url).tls for url in self.urls_by_protocol.values())
        if self.tls and not is_encrypted:
            raise ValueError("tls needs an https:// or grpcs:// url")
        if self.tls and not self.tls.verify and "grpc" in self.load_protocols and self.engine == "reference":
            raise ValueError(
                "tls.verify: false does not work over gRPC with engine: reference; "
                "use engine: wire, or give the certificate of the server or its authority as tls.ca"
            )
        if self.streams_per_connection is not None and ("grpc" not in self.load_protocols or self.engine == "reference"):
            raise ValueError(
                "streams_per_connection needs gRPC and engine: wire; HTTP/1.1 carries one request at a time, and grpcio decides itself"
            )
        return self

    @property
    def load_protocols(self) -> tuple[WireProtocol, ...]:
        """The protocols over which load is sent, each with load points of its own."""
        return tuple(self.urls_by_protocol) or self.protocols or ("http",)

    @property
    def urls_by_protocol(self) -> dict[WireProtocol, str]:
        """The URLs of a running server; empty if perfkit starts the bundled server."""
        return {Address.parse(self.url).protocol: self.url} if self.url else dict(self.urls or {})


class OnnxExecution(Section):
    """How the bundled server executes ONNX models; docs/server.md describes the keys and their combinations."""

    provider: Literal["cpu", "cuda", "tensorrt"] | None = None
    precision: Literal["fp32", "tf32", "fp16", "bf16"] | None = None
    layout: Literal["nchw", "nhwc"] | None = None
    graphs: Annotated[bool, Field(strict=True)] | None = None
    pinned: Annotated[bool, Field(strict=True)] | None = None
    streams: Annotated[int, Field(strict=True, ge=1, le=2)] | None = None
    instances: Annotated[int, Field(strict=True, ge=1, le=16)] | None = None
    max_batch: Annotated[int, Field(strict=True, ge=1, le=64)] | None = None

    def arguments(self) -> tuple[str, ...]:
        """The server's options `KEY=VALUE` for the given keys."""
        given = self.model_dump(exclude_none=True)
        return tuple(f"{key}={('off', 'on')[value] if isinstance(value, bool) else value}" for key, value in given.items())


class Server(Section):
    """Options of the bundled server, which perfkit starts if the target has no URL."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: Count | None = None
    cpus: Cpus | None = None
    onnx: OnnxExecution | None = None
    synthetic: Text | None = None
    """The service time distribution of the model `synthetic`, such as `service=exponential:10ms,servers=2`."""
