"""Results as `perfkit run` writes them, of queues that are simulated: the truth of what a plan says of them is known."""

import dataclasses
import itertools
import math
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from perfkit.errors import MeasurementWarning
from perfkit.points.measured import PointMeasurement
from perfkit.points.point import LoadSummary, point
from perfkit.recorder.series import Series
from perfkit.recorder.window import Window
from perfkit.result.counts import Connections
from perfkit.result.file import ResultWriter
from perfkit.result.generator import Generator
from perfkit.result.interval_log import PointLines, interval_lines
from perfkit.result.load import ClosedLoad, OpenLoad
from perfkit.result.model import Result
from perfkit.stats.buckets import BucketCounts
from perfkit.transport.base import Outcome
from tests.made_once import made_once

NS_PER_S = 1_000_000_000
BATCHES = 20
NO_SERIES = Series(0, 20_000_000, *np.zeros((7, 0), dtype=np.int64))


def mm1_times_s(random, rate_per_s, number, mean_s=0.01):
    """Response times of M/M/1 by Lindley's recursion, after a warm-up."""
    warm_up = 2000
    count = number + warm_up
    served, between = random.exponential(mean_s, count), random.exponential(1 / rate_per_s, count)
    walk = np.concatenate(([0.0], np.cumsum(served[:-1] - between[:-1])))
    return (walk - np.minimum.accumulate(walk) + served)[warm_up:]


def bucket_counts(times_s):
    return BucketCounts.of(np.rint(np.asarray(times_s) * NS_PER_S))


def measured_point(load, repetition, *, seconds, outcomes, times, ended, finished, batch_size=1, cpu_share=0.1, finished_per_s=(),
                   failed_per_s=(), failures=(), batches=(), series=NO_SERIES, counts=(), **fields):  # fmt: skip
    """A load point in one repetition, as a run measures it."""
    window = Window(
        start_ns=0, end_ns=seconds * NS_PER_S, outcomes={**dict.fromkeys(Outcome, 0), **outcomes}, times=times,
        counts={"ended": ended, "finished": finished, **dict(counts)}, finished_per_s=finished_per_s, failures=dict(failures),
        series=series, batches=tuple(batches), failed_per_s=failed_per_s,
    )  # fmt: skip
    return PointMeasurement(
        load=load, repetition=repetition, batch_size=batch_size, window=window, warmup_ns=NS_PER_S,
        connections=Connections(opened=1, reconnects=0), generator=Generator(cpu_share=cpu_share, steal_share=0.0), **fields,
    )  # fmt: skip


def write_result(writer: ResultWriter, measured: Sequence[PointMeasurement], **fields: Any) -> Result:
    """Writes the result with its points, and their summary in the order of the load points."""
    groups: dict[tuple[str, object], list[PointMeasurement]] = {}
    for one in measured:
        groups.setdefault((one.protocol, one.load), []).append(one)
    points, summary = tuple(map(point, measured)), tuple(LoadSummary(group).pooled() for group in groups.values())
    result = Result(started_at="2026-01-02T03:04:05.678+00:00", points=points, summary=summary, **fields)
    writer.save(result)
    writer.commit()
    return result


@dataclasses.dataclass
class Writer:
    """Writes results; `restart` is the share by which this start of the server is slower than the mean. A log has 20 intervals a window.

    `parts_s` gives, by the name of a time of parts of streamed answers, these times at a rate, of so many answers at most; `counts` the
    further counts of a window with so many answers. Of these, `timed_out` were not answered in time. Each result has a `workload.seed` of its own, as the scenario says that it was measured with, unless one is given.
    """

    folder: pathlib.Path
    numbers: "itertools.count[int]" = dataclasses.field(default_factory=itertools.count)

    def __call__(self, rates=(), *, concurrencies=(), throughputs=(), model="m", protocol="http", server=(), batch_size=1, seconds=400,
                 repetitions=1, seed=0, restart=0.0, overloaded_from=math.inf, times_s=mm1_times_s, samples=None, rejected=0,
                 invalid=(), slowest_per_s=100, workload_seed=None, parts_s=(), counts=lambda _: (),
                 timed_out=0, not_steady=()):  # fmt: skip
        written = next(self.numbers)
        folder = self.folder / f"result{written}"
        writer = ResultWriter(folder, 1_700_000_000.0)
        random, measured = np.random.default_rng([seed, 77]), []
        loads = [OpenLoad(rate_per_s=rate, arrivals="poisson") for rate in rates] + [ClosedLoad(concurrency=one) for one in concurrencies]
        slower = 1 + restart
        for repetition in range(repetitions):
            for index, load in enumerate(loads):
                is_open = isinstance(load, OpenLoad)
                if is_open:
                    number = samples or round(load.level * seconds)
                    times = slower * times_s(random, min(load.level, 90.0) * slower, number)
                    finished = round(min(load.level, slowest_per_s / slower if load.level >= overloaded_from else math.inf) * seconds)
                else:
                    rate = throughputs[index - len(rates)]
                    finished = round(rate * seconds)
                    times = random.gamma(100, load.level / rate / 100, finished)
                window_s = (repetition * len(loads) + index) * (seconds + 1.0)
                parts = [bucket_counts(one) for one in np.array_split(times, BATCHES)]
                parts_of = {name: np.array_split(part_s(load.level, len(times)), BATCHES) for name, part_s in dict(parts_s).items()}
                for number, part in enumerate(parts):
                    second = number * seconds // BATCHES
                    logged = {"service_time": part} | ({"response_time": part} if is_open else {})
                    logged |= {name: bucket_counts(of_part[number]) for name, of_part in parts_of.items()}
                    writer.log_point([interval_lines(f"p{index}.r{repetition}", window_s + second, logged)])
                writer.log_point([PointLines(f"p{index}.r{repetition}", 0).of_window(round(window_s * NS_PER_S), 0)])
                codes = ["overloaded"] if is_open and load.level >= overloaded_from else []
                codes += ["not_steady"] if load.level in not_steady else []
                measured.append(
                    self._measured(
                        load, times, finished, parts, repetition, codes, seconds, batch_size, protocol, rejected, invalid, counts, timed_out
                    )
                )
        scenario = {
            "name": model, "target": {"model": model, "api": "openai" if parts_s else "v2"}, "stream": {} if parts_s else None, "server": {"device": "auto", **dict(server)},
            "workload": {"batch_size": batch_size, "seed": written if workload_seed is None else workload_seed},
        }  # fmt: skip
        write_result(writer, measured, scenario=scenario, environment={}, status="complete")
        return folder

    @staticmethod
    def _measured(load, times, finished, parts, repetition, codes, seconds, batch_size, protocol, rejected, invalid, counts, timed_out):
        is_open, whole = isinstance(load, OpenLoad), bucket_counts(times)
        kinds = {"service_time": whole, "failure_time": bucket_counts([])}
        if is_open:
            quick = bucket_counts(np.full(len(times), 1e-5))
            kinds |= {"response_time": whole, "start_delay": quick, "pacing_delay": quick}
        return measured_point(
            load, repetition, protocol=protocol, batch_size=batch_size, seconds=seconds, times=kinds, finished=finished, batches=parts,
            outcomes={Outcome.OK: len(times) - timed_out, Outcome.TIMED_OUT: timed_out, Outcome.REJECTED: rejected},
            counts=counts(len(times)),
            ended=finished if is_open else round(load.level * seconds / float(np.mean(times))),
            warnings=tuple(MeasurementWarning(code=code, message=f"It was {code}.") for code in codes),
            faults=tuple(MeasurementWarning(code="fault", message="It was not valid.") for level in invalid if level == load.level),
        )  # fmt: skip


def shared_mm1_results(factory):
    """The results of `write_mm1_results`, which all tests share."""
    return sorted(made_once(factory, "mm1", write_mm1_results).iterdir())


def write_mm1_results(folder):
    """Three restarts of M/M/1 with a service time of 10 ms, 2 % apart in speed, up to an overload, and its closed loop."""
    write = Writer(folder)
    rates = (20, 35, 50, 60, 70, 75, 80, 110)
    folders = [
        write(rates, seed=seed, restart=restart, seconds=120, overloaded_from=100) for seed, restart in enumerate((0.02, -0.02, 0.0))
    ]
    numbers = (1, 2, 4, 8, 16, 32, 64, 96)
    throughputs = [100 * n / (1 + 0.03 * (n - 1) + 0.0003 * n * (n - 1)) for n in numbers]
    return [*folders, write((), concurrencies=numbers, throughputs=throughputs)]
