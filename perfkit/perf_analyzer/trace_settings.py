"""perf_analyzer's `--trace-*` options and `--log-frequency`: settings of the server's trace, sent before the load."""

from perfkit.clock import Clock
from perfkit.errors import TargetError
from perfkit.measurement.load_points import connect
from perfkit.perf_analyzer.options import TraceOptions
from perfkit.scenario.credentials import resolve_replicas
from perfkit.scenario.file import LoadedScenario


def trace_settings(options: TraceOptions) -> dict[str, tuple[str, ...]]:
    """The settings that were given, by the names of Triton's trace extension."""
    values = {
        "trace_level": options.level,
        "trace_rate": options.rate,
        "trace_count": options.count,
        "log_frequency": options.log_frequency,
    }
    return {name: (str(value),) for name, value in values.items() if value is not None}


async def change_trace_settings(loaded: LoadedScenario, options: TraceOptions, clock: Clock) -> None:
    """Changes the settings of the scenario's server. Raises TargetError if it refuses, ScenarioError for TLS files that are missing."""
    target = loaded.scenario.target
    for urls in target.urls_by_protocol.values():
        async with connect(loaded.scenario, resolve_replicas(target, urls, loaded.folder), clock) as transport:
            if refusal := await transport.change_trace_settings(trace_settings(options)):
                raise TargetError(f"unable to update trace settings: {refusal}")
