"""What the next steps of a verdict need to know besides the verdict. Pure."""

import dataclasses
from collections.abc import Mapping

from perfkit.gate.command_line import changed_command


@dataclasses.dataclass(frozen=True, slots=True)
class GateFacts:
    """What next steps need to know besides the verdict."""

    command: tuple[str, ...]
    """The words of the command line that was entered, without secrets."""
    is_standard: bool = False
    """Whether the profile is `standard`."""
    counts_requests: bool = False
    """Whether `measure.requests` ends the windows."""
    warmup_ns: int | None = None
    """Of every run."""
    concurrency: int | None = None
    """Of the standard profile's closed loop."""
    workers: int = 1
    """The load generator's processes, if the scenario gives them."""
    metrics: tuple[str, ...] = ()
    """The metrics that count besides the error rate."""
    folder: str = ""
    """The gate's folder."""
    scenario: str = ""
    """The scenario as it was entered."""
    starts_servers: bool = False
    """Whether both arms are commands."""

    def changed(self, settings: Mapping[str, str] | None = None, options: Mapping[str, str] | None = None) -> str:
        """The command line with other settings and options; a time limit gives way to other pairs."""
        without = ("--time",) if options and "--pairs" in options else ("--pairs",) if options and "--time" in options else ()
        return changed_command(self.command, options=options or {}, settings=settings or {}, without=without)
