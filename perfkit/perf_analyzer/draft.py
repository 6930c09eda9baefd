"""A perf_analyzer command line while it is parsed, and the errors that end it."""

import dataclasses
from typing import Any, Literal, TypeAlias

from perfkit.perf_analyzer.options import LoadRange, Options, TlsFiles

USAGE_EXIT_CODE = 99
ABORTED_EXIT_CODE = 134
"""That of perf_analyzer after SIGABRT: where a number does not fit its type, or an exception is not caught."""

Mode: TypeAlias = Literal[
    "Concurrency", "PeriodicConcurrency", "RequestRate", "CustomIntervals", "FixedSchedule", "SessionConcurrency", "DeprecatedConcurrency"
]


class CommandLineError(Exception):
    """A command line that is not run, with what to write to stderr and the exit code."""

    def __init__(self, message: str, exit_code: int = USAGE_EXIT_CODE) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def refusal(complaint: str) -> CommandLineError:
    """The error of a complaint in perf_analyzer's words."""
    return CommandLineError(f"Error: {complaint}")


class UnsupportedError(CommandLineError):
    """A command line that perf_analyzer accepts, and perfkit cannot run."""


@dataclasses.dataclass(slots=True)
class Draft:
    """The options so far, and what their checks need besides them."""

    options: Options = dataclasses.field(default_factory=lambda: Options(model=""))
    mode: Mode | None = None
    has_deprecated_load: bool = False
    """Whether -c, -t or -d were given, which make it a concurrency mode in the end."""
    concurrency: LoadRange = dataclasses.field(default_factory=LoadRange)
    rate: LoadRange = dataclasses.field(default_factory=LoadRange)
    service_kind: str = "triton"
    has_url: bool = False
    has_known_protocol: bool = True
    has_compression: bool = False
    has_metrics_url: bool = False
    has_metrics_interval: bool = False
    http_tls: TlsFiles = dataclasses.field(default_factory=TlsFiles)
    grpc_tls: TlsFiles = dataclasses.field(default_factory=TlsFiles)
    uses_grpc_tls: bool = False
    verifies_peer: bool = True
    verifies_host: bool = True
    der_files: set[str] = dataclasses.field(default_factory=set)
    """The flags of files that are in DER form."""
    parameters: dict[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    """The value and the type of each request parameter, as given."""
    endpoint: str = ""
    model_repository: str = ""
    server_directory: str = "/opt/tritonserver"

    def set(self, **fields: Any) -> None:
        """Changes fields of the options."""
        self.options = dataclasses.replace(self.options, **fields)

    def set_sequences(self, **fields: Any) -> None:
        """Changes fields of the sequence options."""
        self.set(sequences=dataclasses.replace(self.options.sequences, is_given=True, **fields))

    def set_trace(self, **fields: Any) -> None:
        """Changes fields of the server's trace settings."""
        self.set(trace=dataclasses.replace(self.options.trace, **fields))

    def warn(self, line: str) -> None:
        """Adds a line that is written to stderr where the command line is accepted."""
        self.set(warnings=(*self.options.warnings, line))

    @property
    def final_mode(self) -> Mode:
        """The mode in which the load is generated."""
        return "Concurrency" if self.has_deprecated_load or self.mode is None else self.mode
