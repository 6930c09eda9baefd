"""The `target` and `server` sections of a scenario: where load is sent, and the bundled server's options."""

import urllib.parse
from typing import Annotated, Literal, Self

import pydantic
from pydantic import AfterValidator, BeforeValidator, Field

from perfkit.scenario.section import Count, Cpus, Duration, Section, Size, Text
from perfkit.target.address import Address, WireProtocol, host_name, redacted_url
from perfkit.target.apis import APIS, Api, ApiName, Endpoint, EndpointName, api_with
from perfkit.target.command import check_ports, command_words, takes_ports


def _parse_version(value: object) -> object:
    """Accepts `version: 1` without quotes."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Version = Annotated[str, BeforeValidator(_parse_version, json_schema_input_type=str | int)]


def _check_page(url: str) -> str:
    try:
        parts = urllib.parse.urlsplit(url)
        is_page = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_page = False
    if not is_page:
        raise ValueError(f"expected an http:// or https:// URL, such as http://127.0.0.1:8002/metrics, found {redacted_url(url)!r}")
    return url


MetricsUrl = Annotated[Text, AfterValidator(_check_page)]


def _check_words(command: str) -> str:
    command_words(command)
    return command


Command = Annotated[Text, AfterValidator(_check_words)]
"""A program and its arguments, which no shell reads."""


class TlsOptions(Section):
    """TLS for `https://` and `grpcs://`. Paths of PEM files are relative to the scenario's folder; the default `ca` is the system's."""

    ca: Text | None = None
    """A PEM file of the authority that is trusted."""
    cert: Text | None = None
    """A PEM file of the client's certificate."""
    key: Text | None = None
    """A PEM file of the client's key."""
    server_name: Annotated[str, Field(strict=True)] = ""
    """The name that the server's certificate must have."""
    verify: Annotated[bool, Field(strict=True)] = True
    """Whether the server's certificate is checked."""

    @pydantic.model_validator(mode="after")
    def _has_a_certificate_for_the_key(self) -> Self:
        if self.key and not self.cert:
            raise ValueError("a key needs its certificate: give cert")
        return self

    @pydantic.field_validator("server_name")
    @classmethod
    def _is_a_host_name(cls, name: str) -> str:
        return host_name(name) if name else name


def _parse_urls(value: object) -> object:
    """Leaves a URL as it is; a list of them becomes a tuple."""
    if isinstance(value, str) and value:
        return value
    if isinstance(value, list | tuple) and value and all(isinstance(url, str) and url for url in value):
        return tuple(value)
    raise ValueError("expected a URL, or a list of the URLs of replicas")  # without the value, which may hold a secret


Urls = Annotated[str | tuple[str, ...], BeforeValidator(_parse_urls, json_schema_input_type=str | list[str])]
"""A URL, or those of a server's replicas."""


class SecretSource(Section):
    """A file or a command that gives the value of a variable, such as a token that expires; it is read again while load is sent."""

    file: Text | None = None
    """A file whose text is the value; relative to the scenario's folder."""
    command: Command | None = None
    """A program and its arguments, without a shell, whose output is the value; it has 30 s, and runs in the scenario's folder."""
    every_ns: Annotated[Duration, Field(gt=0)] = Field(default=60_000_000_000, alias="every")
    """After this time the value is read again."""

    @pydantic.model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if (self.file is None) == (self.command is None):
            raise ValueError("give either file or command")
        return self


class ConnectionOptions(Section):
    """When a connection is closed and a new one opened in its place, never in the middle of a request."""

    max_requests: Count | None = None
    """After so many requests; 1 opens a connection for each request."""
    max_age_ns: Duration | None = Field(default=None, alias="max_age", gt=0)
    """With the first request after so long."""

    @pydantic.model_validator(mode="after")
    def _has_a_limit(self) -> Self:
        if self.max_requests is None and self.max_age_ns is None:
            raise ValueError("give max_requests, max_age, or both")
        return self


class Target(Section):
    """The server under test; without `url`, `urls` and `command` perfkit starts the bundled server."""

    url: Urls | None = None
    """A list holds the URLs of replicas, among which `balance` chooses."""
    urls: Annotated[dict[WireProtocol, Urls], Field(min_length=1)] | None = None
    """In place of `url`: one server's URL for each protocol, `{http: URL, grpc: URL}`. Each protocol has its own load points."""
    command: Command | None = None
    """A program and its arguments, without a shell, which perfkit runs as the server. It takes the ports `{port}`, or `{http_port}` and
    `{grpc_port}`, or without any of them listens at `url`."""
    ready_within_ns: Annotated[Duration, Field(gt=0)] = Field(default=300_000_000_000, alias="ready_within")
    """How long a command may take until the model is ready."""
    balance: Literal["round_robin", "least_in_flight", "random"] | None = None
    """How requests are spread over replicas, `round_robin` by default."""
    resolve: Literal["first", "all"] | None = None
    """Which addresses of a URL's name are used: `first`, the default, takes for each new connection the first that accepts it; `all` takes
    each as a replica, and resolves the name again when a connection was rotated or could not be opened."""
    connections: ConnectionOptions | None = None
    """When connections are closed and replaced."""
    protocols: Annotated[tuple[WireProtocol, ...], Field(min_length=1)] | None = None
    """In place of `url`: the protocols of a server that perfkit starts; the default is `[http]`."""
    model: Text
    """The model's name."""
    version: Version = ""
    """The model's version; empty for the server's choice."""
    api: ApiName = "v2"
    """The API: v2, the Open Inference Protocol, or OpenAI's."""
    endpoint: EndpointName | None = None
    """With `api: openai`, where requests go, `chat` by default; the URL may end with `/v1` or not."""
    composing_models: tuple[Text, ...] = ()
    """Further models whose server statistics are reported, `NAME` or `NAME:VERSION`: those that the model calls itself, as business logic
    scripting does. The models of an ensemble's steps are found without it."""
    engine: Literal["wire", "reference"] = "wire"
    """perfkit's own engine, or the reference (aiohttp, grpcio)."""
    timeout_ns: Duration = Field(default=30_000_000_000, alias="timeout", gt=0)
    """After this time a request counts as timed out."""
    max_connections: Count | None = None
    """The most connections; the default is 1024, at most 80 % of the file limit."""
    streams_per_connection: Count | None = None
    """Concurrent requests on one connection, 1 by default; only gRPC with the wire engine supports more."""
    max_answer_bytes: Annotated[Size, Field(ge=1 << 20)] | None = Field(default=None, alias="max_answer")
    """The length from which an answer is refused, which ends the run. The default is four times the first answer and 1 MiB, or a request's share of
    1 GiB for all in flight, if that is more, but at most 256 MiB."""
    headers: dict[str, Annotated[str, Field(strict=True)]] = Field(default_factory=dict)
    """HTTP headers or gRPC metadata; `${NAME}` takes a secret of `secrets`, or else an environment variable."""
    secrets: dict[str, SecretSource] = Field(default_factory=dict)
    """Values for `${NAME}` in headers and in the credentials of URLs, from files or commands."""
    tls: TlsOptions | None = None
    """Certificates and checks of encrypted connections."""
    metrics_url: MetricsUrl | None = None
    """The server's Prometheus page."""
    compression: Literal["none", "gzip", "deflate"] = "none"
    """The compression of requests, and of answers if the server supports it."""

    @pydantic.field_validator("secrets")
    @classmethod
    def _are_variables(cls, secrets: dict[str, SecretSource]) -> dict[str, SecretSource]:
        if unlike := [name for name in secrets if not name.isidentifier()]:
            raise ValueError(f"a secret's name is that of a variable, such as TOKEN, found {unlike[0]!r}")
        return secrets

    @pydantic.field_validator("url")
    @classmethod
    def _is_valid_url(cls, url: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if len({address.protocol for address in _replicas(url)}) > 1:
            raise ValueError("the URLs of a list are replicas of one protocol: for both protocols use urls: {http: URL, grpc: URL}")
        return url

    @pydantic.field_validator("urls")
    @classmethod
    def _fit_their_protocols(cls, urls: dict[WireProtocol, str | tuple[str, ...]]) -> dict[WireProtocol, str | tuple[str, ...]]:
        for protocol, url in urls.items():
            for address in _replicas(url):
                if address.protocol != protocol:
                    raise ValueError(f"{protocol}: this URL is for {address.protocol}: swap the URLs, or correct the scheme")
        return urls

    @pydantic.model_validator(mode="after")
    def _has_one_place(self) -> Self:
        if self.command is None:
            return self
        if self.urls_by_protocol and takes_ports(self.command):
            raise ValueError(
                f"command and {'url' if self.url else 'urls'} exclude each other, because perfkit chooses the ports that the command takes: "
                "remove the URL, or write its port into the command"
            )
        if not self.urls_by_protocol:
            check_ports(self.command, self.load_protocols)
        if any(len(urls) > 1 for urls in self.urls_by_protocol.values()) or self.balance or self.resolve == "all":
            raise ValueError("command starts one server: give a single url, without balance and resolve: all")
        return self

    @pydantic.model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.url and self.urls:
            raise ValueError("url and urls exclude each other: move the URL into urls, such as {http: URL, grpc: URL}")
        if self.urls_by_protocol and self.protocols:
            raise ValueError(
                f"{'url' if self.url else 'urls'} and protocols exclude each other, because protocols are for a server that perfkit starts: "
                "remove one (--set target.protocols=null)"
            )
        addresses = [Address.parse(url) for urls in self.urls_by_protocol.values() for url in urls]
        if self.balance and self.resolve != "all" and all(len(urls) < 2 for urls in self.urls_by_protocol.values()):
            raise ValueError("balance needs several addresses: give a list as url, or resolve: all for a name that has several")
        if self.resolve == "all" and not any(address.has_name for address in addresses):
            raise ValueError("resolve: all needs a url with a name, such as that of a headless service: remove resolve")
        is_encrypted = any(address.tls for address in addresses)
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

    @pydantic.model_validator(mode="after")
    def _has_keys_of_its_api(self) -> Self:
        if self.endpoint is not None and self.spoken_api.endpoint(self.endpoint) is None:
            owner = api_with(self.endpoint)
            raise ValueError(f"endpoint: {self.endpoint} is one of {owner.title}: add api: {owner.name}, or remove endpoint")
        if self.spoken_api.is_http_only and "grpc" in self.load_protocols:
            raise ValueError(f"api: {self.api} is spoken over HTTP: give an http:// or https:// url, or protocols: [http]")
        return self

    @property
    def spoken_api(self) -> Api:
        """What the API is like."""
        return APIS[self.api]

    @property
    def spoken_endpoint(self) -> Endpoint:
        """The endpoint, or the API's default."""
        return self.spoken_api.endpoint(self.endpoint) or self.spoken_api.endpoints[0]

    @property
    def load_protocols(self) -> tuple[WireProtocol, ...]:
        """The protocols over which load is sent, each with load points of its own."""
        return tuple(self.urls_by_protocol) or self.protocols or ("http",)

    @property
    def urls_by_protocol(self) -> dict[WireProtocol, tuple[str, ...]]:
        """The URLs of the server, several of its replicas; empty if perfkit chooses its ports."""
        given = {_replicas(self.url)[0].protocol: self.url} if self.url else self.urls or {}
        return {protocol: (url,) if isinstance(url, str) else url for protocol, url in given.items()}

    @property
    def is_started(self) -> bool:
        """Whether perfkit starts the server: by the command, or the bundled one."""
        return self.command is not None or not self.urls_by_protocol


def _replicas(url: str | tuple[str, ...]) -> list[Address]:
    """The addresses of a URL or a list of them; raises ValueError, also for two that are equal."""
    if isinstance(url, str):
        return [Address.parse(url)]
    addresses = []
    for number, one in enumerate(url, 1):
        try:
            addresses.append(Address.parse(one))
        except ValueError as error:  # the end of the message quotes the text, which may be a secret
            raise ValueError(f"URL {number} of the list: {str(error).rpartition(', ')[0]}") from None
    shown = [str(address) for address in addresses]
    if len(set(shown)) < len(shown):
        raise ValueError(f"the list names {max(shown, key=shown.count)} more than once")
    return addresses


class OnnxExecution(Section):
    """How the bundled server executes ONNX models; docs/reference/server.md describes the keys and their combinations."""

    provider: Literal["cpu", "cuda", "tensorrt"] | None = None
    """ONNX Runtime's execution provider."""
    precision: Literal["fp32", "tf32", "fp16", "bf16"] | None = None
    """The precision of the computation."""
    layout: Literal["nchw", "nhwc"] | None = None
    """The layout of the tensors inside the model."""
    graphs: Annotated[bool, Field(strict=True)] | None = None
    """Whether CUDA graphs are captured and replayed."""
    instances: Annotated[int, Field(strict=True, ge=1, le=16)] | None = None
    """Instances of the model."""
    max_batch: Annotated[int, Field(strict=True, ge=1, le=64)] | None = None
    """The largest batch that the server forms."""

    def arguments(self) -> tuple[str, ...]:
        """The server's options `KEY=VALUE` for the given keys."""
        given = self.model_dump(exclude_none=True)
        return tuple(f"{key}={('off', 'on')[value] if isinstance(value, bool) else value}" for key, value in given.items())


class Server(Section):
    """Options of the bundled server, which perfkit starts if the target has neither URL nor command; `cpus` are those of a command, too."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the bundled server computes."""
    threads: Count | None = None
    """Its compute threads."""
    cpus: Cpus | None = None
    """The CPUs of the server that perfkit starts, such as `[0]` or `0,2-3`; without effect on a server at a URL."""
    onnx: OnnxExecution | None = None
    """How it executes ONNX models."""
    synthetic: Text | None = None
    """The service time distribution of the model `synthetic`, such as `service=exponential:10ms,servers=2`."""
