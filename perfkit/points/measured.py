"""What was measured at a load point: its windows, and the resources that were used in them."""

import dataclasses
from collections.abc import Mapping

from perfkit.errors import MeasurementWarning
from perfkit.figures.resources import GpuFigures, MachineFigures, MetricFigures, ServerCpuUse
from perfkit.recorder.window import Window
from perfkit.result.cold_start import ColdStart
from perfkit.result.generator import Generator
from perfkit.result.load import Load, OpenLoad
from perfkit.result.model import Connections, Protocol
from perfkit.spans.span import SampledRequest
from perfkit.stats.buckets import EMPTY, BucketCounts
from perfkit.telemetry.server.statistics import ServerCounts
from perfkit.transport.options import Balance
from perfkit.workers.point_recording import MachineRecording


@dataclasses.dataclass(frozen=True, slots=True)
class Resources:
    """The resources used during one window."""

    server: ServerCounts | None = None
    server_cpu: ServerCpuUse | None = None
    gpus: tuple[GpuFigures, ...] = ()
    server_has_gpu: bool = False
    """Whether the target is known to have a GPU: its device is CUDA, its process is on a GPU, or its own metrics page lists one."""
    metrics: tuple[MetricFigures, ...] = ()
    machine: MachineFigures | None = None
    event_loop_lag: BucketCounts = EMPTY
    """How late the timers of the workers' event loops fired."""
    gc_pauses_ns: tuple[int, ...] | None = None


NO_RESOURCES = Resources()


@dataclasses.dataclass(frozen=True, slots=True)
class MachineMeasurement:
    """The part of one machine of a fleet in a load point."""

    recorded: MachineRecording
    window: Window | None
    """None if all its workers were lost."""


@dataclasses.dataclass(frozen=True, slots=True)
class PointMeasurement:
    """What was measured at one load point in one repetition."""

    protocol: Protocol
    load: Load
    batch_size: float
    """The inferences of a request; of a replay or a whole mix, the mean."""
    repetition: int
    window: Window
    warmup_ns: int
    """From the start of the load to the start of the window."""
    connections: Connections
    generator: Generator
    warnings: tuple[MeasurementWarning, ...]
    think_time_ns: int = 0
    has_slo: bool = False
    """Whether the window counted good answers."""
    workload: str | None = None
    """The workload of a mix; None for the whole, and for a scenario that is no mix."""
    is_alone: bool = False
    shares_load: bool = False
    """Whether the requests in flight are not those of this workload alone, or not of one think time."""
    is_streamed: bool = False
    has_sequences: bool = False
    cold_start: ColdStart | None = None
    resources: Resources = NO_RESOURCES
    connect_times: BucketCounts = EMPTY
    connections_by_address: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Empty for a target with a single address."""
    balance: Balance | None = None
    """How requests are spread over several addresses; None where each connection takes the first that accepts it."""
    machines: tuple[MachineMeasurement, ...] = ()
    """The parts of a fleet; empty for a load that this machine sent by itself."""
    sampled: tuple[SampledRequest, ...] = ()
    """The traced requests of the window."""
    faults: tuple[MeasurementWarning, ...] = ()
    """Events that make the point invalid, whatever its figures are."""

    @property
    def is_open(self) -> bool:
        """Whether the load was an open loop."""
        return isinstance(self.load, OpenLoad)
