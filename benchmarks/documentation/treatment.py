"""What a page's commands need around them, and how a command is run that cannot be run as it stands."""

import dataclasses
from collections.abc import Mapping

from benchmarks.documentation.commands import Command


@dataclasses.dataclass(frozen=True)
class Treatment:
    """How the commands of a page that begin with `start` are run. The default is to run a command as it stands and to expect exit code 0."""

    start: str
    """How the command begins; of a script, a part of it. Empty for all commands of the page."""
    not_run: str = ""
    """The reason why it is not executed."""
    added: str = ""
    """Options added at its end, which shorten it."""
    replaced: tuple[tuple[str, str], ...] = ()
    """What stands for something of the reader's, and what is put in its place."""
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Variables that shorten it where options cannot be added."""
    before: str = ""
    """Shell commands that make what the command needs."""
    script: str = ""
    """Shell commands around the lines of a block that belong to several machines: `{0}` is the first line, `{1}` the second."""
    exit_codes: tuple[int, ...] = (0,)
    """The exit codes that the page states."""
    is_ready: str = ""
    """What a command that runs until Ctrl-C says when it is ready; it runs in the background."""
    after: str = ""
    """Shell commands after it, which must succeed. `interrupt` ends the newest command of the background by Ctrl-C, and expects exit code 0."""
    note: str = ""
    """What differs from the page, for the report."""

    def fits(self, command: Command) -> bool:
        """Whether it is of this command."""
        return command.text.startswith(self.start) if command.is_console else self.start in command.text


@dataclasses.dataclass(frozen=True)
class Server:
    """A bundled server that a page's commands use. It has the models of `models.py` where `options` name none."""

    options: str = ""
    http_port: int = 8000
    grpc_port: int = 8001
    metrics_port: int = 8002

    @property
    def command(self) -> str:
        """What starts it."""
        models = "" if "--model" in self.options else "--model-repository {models}"
        ports = f"--http-port {self.http_port} --grpc-port {self.grpc_port} --metrics-port {self.metrics_port}"
        return f"perfkit serve {ports} {models} {self.options}"


@dataclasses.dataclass(frozen=True)
class PageSetup:
    """What is there before the first command of a page."""

    servers: tuple[Server, ...] = (Server(),)
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """IP addresses by host name; those that are not of the loopback are added to it."""
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Texts by file name; a name without a folder that begins with `./` is executable."""
    blocks: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """By file name, how the page's code block begins that the reader saves under this name."""
    commands: str = ""
    """Shell commands that make the rest, in the page's folder."""
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    installs: bool = False
    """Whether it installs perfkit: its folder is then a copy of the checkout, and its network that of the machine, where the packages come from."""
