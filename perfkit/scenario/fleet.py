"""The `fleet` section of a scenario: machines that send the load together."""

import re
from typing import Annotated, Literal, Self

import pydantic
from pydantic import AfterValidator, Field

from perfkit.scenario.section import Count, Duration, Section, Text
from perfkit.units import NS_PER_S

DEFAULT_LISTEN = "0.0.0.0:8790"
_HOST_AND_PORT = re.compile(r"(?P<host>[^\s:/\[\]]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")


def _check_host_and_port(text: str) -> str:
    match = _HOST_AND_PORT.fullmatch(text)
    if not match or int(match["port"]) > 65_535:
        raise ValueError(f"expected a host and a port, such as {DEFAULT_LISTEN}, found {text!r}")
    return text


def _check_scheduler(text: str) -> str:
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in {"tcp", "tls", "ws", "wss"} or not rest:
        raise ValueError(f"expected the URL of a Dask scheduler, such as tcp://host:8786, found {text!r}")
    return text


class Fleet(Section):
    """Several machines send the load together, one schedule divided among them; this perfkit drives them and sends no request itself."""

    kind: Literal["worker", "dask"]
    """`worker`: `perfkit worker --join` is started on each machine; `dask`: a Dask cluster starts it."""
    workers: Count | None = None
    """The number of machines; by default, with Dask, all hosts of the cluster. Each runs `measure.workers` processes."""
    listen: Annotated[Text, AfterValidator(_check_host_and_port)] = DEFAULT_LISTEN
    """The host and port at which the machines join; port 0 picks a free one."""
    scheduler: Annotated[Text, AfterValidator(_check_scheduler)] | None = None
    """The URL of the Dask scheduler."""
    token_file: Text | None = None
    """A file with the secret that all machines share; by default the environment variable PERFKIT_FLEET_TOKEN, or a new secret."""
    tls_cert: Text | None = None
    """A PEM certificate, for TLS between this perfkit and the machines."""
    tls_key: Text | None = None
    """The certificate's PEM key, unencrypted."""
    join_within_ns: Duration = Field(default=120 * NS_PER_S, alias="join_within")
    """How long the machines have to join."""
    on_loss: Literal["continue", "stop"] = "continue"
    """What the other machines do when one is lost: go on to the end of the load point, and carry the whole load of the next; or stop."""

    @pydantic.model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        if self.kind == "dask" and self.scheduler is None:
            raise ValueError("kind: dask needs scheduler, the URL of the Dask scheduler, such as tcp://host:8786")
        if self.kind == "worker" and self.scheduler is not None:
            raise ValueError("scheduler is for kind: dask: remove it, or give kind: dask")
        if self.kind == "worker" and self.workers is None:
            raise ValueError("kind: worker needs workers, the number of machines that join (--machines with --fleet)")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key belong together: give both")
        return self

    @property
    def listen_at(self) -> tuple[str, int]:
        """The host and port of `listen`."""
        host, port = self.listen.rsplit(":", 1)
        return host.strip("[]"), int(port)
