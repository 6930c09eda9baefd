"""A command that starts a server: its words, and the ports that perfkit puts into it. Pure."""

import re
import shlex
from collections.abc import Mapping, Sequence

from perfkit.target.address import WireProtocol

COMMAND_PREFIX = "cmd:"
"""Before a command, where a target may also be a URL."""
PORT = "{port}"
_PORT_OF: Mapping[WireProtocol, str] = {"http": "{http_port}", "grpc": "{grpc_port}"}
_EXAMPLE = "my-server --port {port}"
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_WORD = re.compile(r"""(?:[^\s'"\\]|\\.|'[^']*'|"(?:\\.|[^"\\])*")+""", re.DOTALL)
_OPERATOR = re.compile(r"&&|\|\|?|;|&|(?:\d*|&)(?:>>?|<)(?:&?\S*)")
_BUILTINS = {"cd", "export", "source", ".", "ulimit", "umask", "exec", "set", "unset"}
_CHAINS = ("&&", ";")


class ShellSyntaxError(ValueError):
    """A command that only a shell understands; `instead` is one with the same effect that perfkit can run."""

    def __init__(self, what: str, instead: str) -> None:
        super().__init__(f"{what}, and perfkit runs a command without a shell: write {instead}")
        self.what, self.instead = what, instead


def command_words(command: str) -> list[str]:
    """The program and its arguments as a shell would split them, but without a shell; raises ValueError, ShellSyntaxError for its syntax."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ValueError(f"{error} in {command!r}") from None
    if not words:
        raise ValueError(f"expected a program and its arguments, such as '{_EXAMPLE}', found nothing")
    raw = _WORD.findall(command)  # with their quotes: a quoted operator is an argument
    if (operator := next(filter(None, map(_shell_operator, raw)), None)) is not None:
        raise ShellSyntaxError(f"{operator} is for a shell", f"sh -c {shlex.quote(_ending_in_exec(raw))}")
    if raw[0] in _BUILTINS:
        raise ShellSyntaxError(f"{raw[0]} is a command of the shell", f"sh -c {shlex.quote(_ending_in_exec(raw))}")
    if _ASSIGNMENT.match(raw[0]):
        raise ShellSyntaxError(f"{raw[0].partition('=')[0]}= before a program is for a shell", f"env {command.strip()}")
    return words


def _shell_operator(raw: str) -> str | None:
    """The operator that a word with its quotes is, or contains where none can be meant as text; None for other words."""
    if _OPERATOR.fullmatch(raw):
        return raw
    joined = re.sub(r"""\\.|'[^']*'|"[^"]*\"""", "", raw)
    return "&&" if "&&" in joined else ";" if joined.endswith(";") else None


def _ending_in_exec(raw: Sequence[str]) -> str:
    """A shell command whose last program replaces the shell, so that signals reach it; unchanged where that could change it."""
    ends = [number for number, word in enumerate(raw) if word in _CHAINS or word.endswith(";")]
    last = raw[ends[-1] + 1 :] if ends else list(raw)
    is_plain = bool(last) and last[0] not in _BUILTINS and not any(word in ("|", "||", "&") or "&&" in word for word in raw if word != "&&")
    if not is_plain:
        return " ".join(raw)
    return " ".join([*raw[: len(raw) - len(last)], "exec", *(["env"] if _ASSIGNMENT.match(last[0]) else []), *last])


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
