"""The `fleet` section of a scenario: machines that send the load together."""

from typing import Annotated, Literal, Self

import pydantic
from pydantic import AfterValidator, Field

from perfkit.scenario.load import ColdStartLoadSpec, IdleLoadSpec, LoadSpec
from perfkit.scenario.section import Count, Duration, Section, Text, parse_host_and_port
from perfkit.scenario.shared_memory import SharedMemorySpec
from perfkit.units import NS_PER_S

_EXAMPLE, _PORT = "10.0.0.5:8790", 8790
DASK_SCHEMES = ("tcp", "tls", "ws", "wss")
"""How the address of a Dask scheduler may begin."""


def _check_listen(text: str) -> str:
    parse_host_and_port(text, _EXAMPLE)
    return text


def _check_scheduler(text: str) -> str:
    scheme, separator, rest = text.partition("://")
    if scheme not in DASK_SCHEMES or not separator or not rest:
        raise ValueError(f"expected the address of a Dask scheduler, such as tcp://host:8786, found {text!r}")
    return text


class Fleet(Section):
    """Several machines send the load together, one schedule divided among them; this perfkit drives them and sends no request itself."""

    kind: Literal["worker", "dask"] = "worker"
    """`worker`: `perfkit worker --join` is started on each machine by hand; `dask`: a Dask cluster starts it."""
    workers: Count | None = None
    """The number of machines; with Dask, one on each of its hosts by default. Each runs `measure.workers` processes."""
    scheduler: Annotated[Text, AfterValidator(_check_scheduler)] | None = None
    """The address of the Dask scheduler."""
    listen: Annotated[Text, AfterValidator(_check_listen)] | None = None
    """The host and port at which the machines join; port 0 picks a free one. By default port 8790 of 127.0.0.1 for a target on this machine, and
    of all addresses for another."""
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
    def _is_complete(self) -> Self:
        if self.kind == "dask" and self.scheduler is None:
            raise ValueError("kind: dask needs scheduler, the address of the Dask scheduler, such as tcp://host:8786")
        if self.kind == "worker" and self.scheduler is not None:
            raise ValueError("scheduler goes with kind: dask: give that, or remove scheduler")
        if self.kind == "worker" and self.workers is None:
            raise ValueError("workers is missing: give the number of machines that join (--machines with --fleet)")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key belong together: give both")
        return self

    def listen_at(self, *, target_is_local: bool) -> tuple[str, int]:
        """The host and port of `listen`."""
        if self.listen is None:
            return "127.0.0.1" if target_is_local else "0.0.0.0", _PORT  # noqa: S104 - the machines are others, and prove that they know the token
        return parse_host_and_port(self.listen, _EXAMPLE)


def check_fleet(load: LoadSpec, shared_memory: SharedMemorySpec) -> None:
    """Raises ValueError if a fleet cannot send this load; the arguments are the scenario's sections."""
    if shared_memory is not None:
        raise ValueError("shared_memory needs the load generator on the server's machine: remove shared_memory, or fleet")
    if isinstance(load, ColdStartLoadSpec | IdleLoadSpec):
        raise ValueError("fleet: cold starts and idle gaps are measured one request at a time: remove fleet, or give another load")
