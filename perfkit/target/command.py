"""A command that starts a server: its words, and the ports that perfkit puts into it. Pure."""

import shlex
from collections.abc import Mapping, Sequence

from perfkit.target.address import WireProtocol

PORT = "{port}"
_PORT_OF: Mapping[WireProtocol, str] = {"http": "{http_port}", "grpc": "{grpc_port}"}
_EXAMPLE = "my-server --port {port}"


def command_words(command: str) -> list[str]:
    """The program and its arguments as a shell would split them, but without a shell; raises ValueError."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ValueError(f"{error} in {command!r}") from None
    if not words:
        raise ValueError(f"expected a program and its arguments, such as '{_EXAMPLE}', found nothing")
    return words


def takes_ports(command: str) -> bool:
    """Whether perfkit chooses the ports of the command's server."""
    return any(place in command for place in (PORT, *_PORT_OF.values()))


def check_ports(command: str, protocols: Sequence[WireProtocol]) -> None:
    """Raises ValueError unless the command says where its server takes the port of each protocol."""
    if len(protocols) == 1 and PORT in command:
        return
    if missing := [_PORT_OF[protocol] for protocol in protocols if _PORT_OF[protocol] not in command]:
        if takes_ports(command):
            raise ValueError(f"write {' and '.join(missing)} in the command where the server takes its ports for {' and '.join(protocols)}")
        places = PORT if len(protocols) == 1 else " and ".join(missing)
        raise ValueError(
            f"the server's address is unknown: write {places} in the command where the server takes its port{'s' * (len(protocols) > 1)}, "
            "or give its address as target.url"
        )


def with_ports(command: str, protocols: Sequence[WireProtocol], ports: Mapping[WireProtocol, int]) -> str:
    """The command with the ports put in; `{port}` is that of the only protocol."""
    for protocol, place in _PORT_OF.items():
        command = command.replace(place, str(ports[protocol]))
    return command.replace(PORT, str(ports[protocols[0]]))
