"""Results with random service times, written as a run writes them."""

import dataclasses
import os
import pathlib
from collections.abc import Sequence

import numpy as np
import pytest

from perfkit.errors import MeasurementWarning
from perfkit.recorder.failures import FailureKind
from perfkit.recorder.series import Series
from perfkit.result.file import ResultWriter
from perfkit.result.interval_log import PointLines
from perfkit.result.load import ClosedLoad
from perfkit.result.model import Protocol, Status
from perfkit.stats.buckets import EMPTY, BucketCounts
from perfkit.transport.base import Outcome
from tests.queue_results import NO_SERIES, NS_PER_S, measured_point, write_result
from tests.report.terminal import Terminal

CONCURRENCIES = (1, 2, 4, 8)
PROTOCOLS: tuple[Protocol, ...] = ("http", "grpc")


@dataclasses.dataclass
class Synthetic:
    """Writes a result folder: a server of two slots, about 40 ms a request, lognormal with a few slow ones."""

    folder: pathlib.Path
    protocols: Sequence[Protocol] = PROTOCOLS
    concurrencies: Sequence[int] = CONCURRENCIES
    repetitions: int = 2
    seconds: int = 5
    silent_s: int = 0  # at the window's beginning, without any sample
    service_ms: float = 40.0
    samples: int | None = None  # a second and point, in place of what the server would give
    failed: int = 0  # rejected, of every point
    failed_in_s: int | None = None  # all of them in this second of the window; None, in equal parts
    stalled: Sequence[int] = ()  # concurrencies at which nothing was answered from 2 to 4 s
    overloaded: Sequence[int] = ()  # concurrencies at which the generator's CPU share is 0.95
    cpu_share: float = 0.06
    name: str = "densenet"
    device: str = "cpu"  # of the bundled server
    status: Status = "complete"
    status_reason: str = ""
    warnings: tuple[MeasurementWarning, ...] = ()
    has_intervals: bool = False  # of the percentiles, which a run computes from the parts of its windows

    def __post_init__(self):
        self.values = {}  # service times by point of the summary, all repetitions
        self.window_starts_s = {}  # since the log's start, by point of the summary and repetition

    def write(self):
        writer = ResultWriter(self.folder, 1_700_000_000.0)
        random, measured, elapsed_s = np.random.default_rng(7), [], 0.25
        for repetition in range(self.repetitions):
            for row, protocol in enumerate(self.protocols):
                for column, concurrency in enumerate(self.concurrencies):
                    index = row * len(self.concurrencies) + column
                    measured.append(self._measured(writer, random, index, protocol, concurrency, repetition, elapsed_s))
                    elapsed_s += self.seconds + 1.2
        protocols, concurrencies = list(self.protocols), list(self.concurrencies)
        return write_result(
            writer, measured, status=self.status, status_reason=self.status_reason, overrides=("measure.repetitions=2",),
            scenario={
                "schema": "perfkit.scenario/1",
                "name": self.name,
                "target": {"model": "densenet_onnx", "protocols": protocols, "timeout": "30s", "headers": {}},
                "workload": {"seed": 0, "batch_size": 2},
                "load": {"closed": {"concurrency": concurrencies, "think_time": "0s"}},
                "measure": {"warmup": "1s", "duration": f"{self.seconds}s", "repetitions": self.repetitions, "workers": "auto"},
            },
            environment={
                "generator": {
                    "perfkit": "0.1.0", "libraries": {"numpy": "2.0.0", "grpcio": "1.70.0"}, "cpu_model": "A machine of 8 cores",
                    "usable_cpus": [0, 1, 2, 3, 7], "memory_bytes": 16 * 2**30,
                },
                "target": {
                    "name": "server_stub", "version": "0.1.0", "url": "http://127.0.0.1:40001", "engine": "wire",
                    "bundled_server": {"event": "ready", "device": self.device, "threads": 7, "http_port": 40001},
                },
            },
        )  # fmt: skip

    def _measured(self, writer, random, index, protocol, concurrency, repetition, elapsed_s):
        service_ms = self.service_ms * max(1, concurrency / 2) * (1.0 if protocol == "http" else 0.94)
        per_s = round(concurrency / service_ms * 1000) if self.samples is None else self.samples
        parts, finished = [], {}
        self.window_starts_s[index, repetition] = elapsed_s
        lines, start_ns = PointLines(f"p{index}.r{repetition}", 0), round(elapsed_s * NS_PER_S)
        for second in range(self.silent_s, self.seconds if per_s else 0):
            values_ns = random.lognormal(np.log(service_ms * 1e6), 0.05, per_s) * np.where(random.random(per_s) < 0.02, 1.7, 1.0)
            self.values.setdefault(index, []).extend(values_ns.astype(np.int64).tolist())
            first, rest = np.array_split(values_ns.astype(np.int64), [per_s * 9 // 10])  # an interval may come in parts
            for some in (first, rest):
                parts.append(BucketCounts.of(some))
                if some.size:
                    writer.log_point([lines.of_second(start_ns, second, 0, {"service_time": parts[-1]})])
            finished[second] = max(0, per_s + int(random.integers(-1, 2)))
        writer.log_point([lines.of_window(start_ns, 0)])
        ok, whole = per_s * (self.seconds - self.silent_s), BucketCounts.merged(parts)
        return measured_point(
            ClosedLoad(concurrency=concurrency), repetition, protocol=protocol, batch_size=2, seconds=self.seconds, series=self._series(concurrency),
            cpu_share=0.95 if concurrency in self.overloaded else self.cpu_share,
            outcomes={Outcome.OK: ok, Outcome.REJECTED: self.failed}, times={"service_time": whole, "failure_time": EMPTY},
            failures={FailureKind(Outcome.REJECTED, "503", "the queue is full <b>"): self.failed} if self.failed else {},
            ended=round(concurrency * self.seconds * NS_PER_S / whole.mean_and_stddev_ns()[0]) if ok else 0, finished=sum(finished.values()), batches=parts if self.has_intervals else (),
            finished_per_s=tuple(finished.get(second, 0) for second in range(self.seconds)), warnings=self.warnings,
            failed_per_s=tuple(
                self.failed // self.seconds if self.failed_in_s is None else self.failed * (second == self.failed_in_s) for second in range(self.seconds)
            ),
        )  # fmt: skip

    def _series(self, concurrency):
        answered = np.full(20 * self.seconds, 5)
        answered[40:80] = 0
        return Series(0, NS_PER_S // 20, *np.tile(answered, (7, 1))) if concurrency in self.stalled else NO_SERIES


@pytest.fixture
def synthetic(tmp_path):
    """Makes a writer of results in a new folder."""

    def make(**options):
        return Synthetic(tmp_path / "result", **options)

    return make


@pytest.fixture
def terminal():
    made = Terminal()
    yield made
    os.close(made.slave)
    os.close(made.master)
