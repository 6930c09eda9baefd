"""A perf_analyzer command as it runs: load after load, until the sweep ends; then its summary and its files."""

import dataclasses
import enum
import os
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from perfkit.errors import PerfkitError
from perfkit.perf_analyzer.csv_file import composing_csv_files, csv_text
from perfkit.perf_analyzer.measured_load import MeasuredLoad
from perfkit.perf_analyzer.messages import in_options
from perfkit.perf_analyzer.options import Options
from perfkit.perf_analyzer.stdout import Report
from perfkit.perf_analyzer.sweep import attempts, loads


class ExitCode(enum.IntEnum):
    """perf_analyzer's exit codes."""

    DONE = 0
    UNSTABLE = 2
    """A single load was measured, and its windows did not agree."""
    NO_REQUESTS = 3
    """No request was answered within a window."""
    FAILED = 99


class Interrupted(Exception):  # noqa: N818 - not an error: the user ended the command
    """The user ended the measurement of a load."""


class Measurement(Protocol):
    """What measures loads."""

    def warm_up(self, value: float) -> None:
        """Sends the requests of `--warmup-request-count` with the load, and throws them away."""

    def measure(self, value: float) -> Sequence[MeasuredLoad]:
        """The figures of a load, for each model; raises PerfkitError, and Interrupted."""


@dataclasses.dataclass(frozen=True)
class Output:
    """Where the command writes lines."""

    write: Callable[[str], None]
    """A line of stdout."""
    complain: Callable[[str], None]
    """A line of stderr."""


def profile(options: Sequence[Options], measurement: Measurement, output: Output) -> ExitCode:
    """Measures the loads of a command, or of several that run at the same time, each with a model of its own; writes their reports.

    Raises PerfkitError before any measurement if a file of `-f` cannot be written.
    """
    return _Profile(options, measurement, output).run()


class _Profile:
    def __init__(self, options: Sequence[Options], measurement: Measurement, output: Output) -> None:
        self._options, self._leading = options, options[0]
        self._measurement, self._output = measurement, output
        self._reports = [Report(one) for one in options]
        self._kept: list[list[MeasuredLoad]] = [[] for _ in options]
        self._is_last_stable = True

    def run(self) -> ExitCode:
        for options in self._options:
            check_csv_file(options)
        for report in self._reports:
            self._write(report.settings())
        count, code = 0, ExitCode.DONE
        sweep = loads(self._leading)
        try:
            value = next(sweep)
            while True:
                count += 1
                value = sweep.send(self._measure(value))
        except StopIteration:
            is_linear = not self._leading.is_binary_search and self._leading.load_mode != "request_intervals"
            if count == 1 and is_linear and not self._is_last_stable:
                self._output.complain("Failed to obtain stable measurement.")
                code = ExitCode.UNSTABLE
        except Interrupted:
            self._output.write("Waiting for in-flight inferences to complete.")
        except NoRequestsError as error:
            self._output.complain(str(error))
            code = ExitCode.NO_REQUESTS
        except PerfkitError as error:
            self._output.complain(f"error: {in_options(str(error), self._leading)}")
            code = ExitCode.FAILED
        for options, report, kept in zip(self._options, self._reports, self._kept, strict=True):
            self._write(report.summary(kept))
            try:
                write_csv(options, kept)
            except PerfkitError as error:  # what else is written stays
                self._output.complain(f"error: {error}")
                code = ExitCode.FAILED
        return code

    def _measure(self, value: float) -> bool:
        """Measures a load until it is stable, and reports it if it is below the threshold, too; whether both hold."""
        options = self._leading
        self._write(self._reports[0].load_begins(value))
        if any(one.warmup_request_count for one in self._options):
            self._measurement.warm_up(value)
        for _ in range(attempts(options)):
            measured = self._measurement.measure(value)
            _check_answers(measured)
            if options.verbosity:
                for report, load in zip(self._reports, measured, strict=True):
                    self._write(report.window_passes(load))
            is_above = any(load.is_above(one.latency_threshold_ms) for one, load in zip(self._options, measured, strict=True))
            self._is_last_stable = self._are_stable(measured)
            if is_above or self._is_last_stable:
                break
        if is_above:
            self._output.complain(f"Measured latency went over the set limit of {options.latency_threshold_ms} msec. ")
            return False
        if not self._is_last_stable:
            self._output.complain(_unstable(options, value))
            return False
        for report, kept, load in zip(self._reports, self._kept, measured, strict=True):
            kept.append(load)
            if report is not self._reports[0]:
                self._write(report.load_begins(load.value))
            self._write(report.load(load))
        return True

    def _are_stable(self, measured: Sequence[MeasuredLoad]) -> bool:
        return all(
            load.is_stable(options.stability_percent, checks_latency=not _is_async(options, load))
            for options, load in zip(self._options, measured, strict=True)
        )

    def _write(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._output.write(line)


class NoRequestsError(PerfkitError):
    """No request was answered in the measured windows."""


def _check_answers(measured: Sequence[MeasuredLoad]) -> None:
    """Raises NoRequestsError without any answer, and PerfkitError for failed requests, at which perf_analyzer ends."""
    for load in measured:
        if load.failed:
            words = next((failure.message or failure.outcome for failure in load.failures), "without a reason")
            raise PerfkitError(
                "Failed to maintain requested inference load. Worker thread(s) failed to generate concurrent requests.\n"
                f"{load.failed} of {load.failed + load.requests} requests failed, most of them with: {words}"
            )
        if not load.requests:
            raise NoRequestsError("No valid requests recorded within time interval. Please use a larger time window.")


def _is_async(options: Options, load: MeasuredLoad) -> bool:
    """Whether perf_analyzer would call the server asynchronously, and then judge throughput only."""
    return options.is_async or options.is_streaming or (load.sequences is not None and not options.is_sync)


def _unstable(options: Options, value: float) -> str:
    if options.load_mode != "concurrency":
        return "Failed to obtain stable measurement."
    option = "--measurement-interval" if options.measurement_mode == "time_windows" else "--measurement-request-count"
    return (
        f"Failed to obtain stable measurement within {options.max_trials} measurement windows for concurrency {value:.0f}. "
        f"Please try to increase the {option}."
    )


def check_csv_file(options: Options) -> None:
    """Raises PerfkitError if the file of `-f` cannot be written."""
    if not options.csv_file:
        return
    path = pathlib.Path(options.csv_file)
    is_new = not os.path.lexists(path)
    if not is_new and not path.is_file() and not path.is_dir():
        return  # a pipe, whose reader would see its end
    try:
        path.open("a").close()
        if is_new:
            path.unlink()
    except OSError as error:
        raise _unwritable(path, error) from None


def _unwritable(path: pathlib.Path, error: OSError) -> PerfkitError:
    return PerfkitError(f"-f {path}: it cannot be written: {error.strerror}")


def write_csv(options: Options, kept: Sequence[MeasuredLoad]) -> None:
    """Writes the file of `-f` and those of composing models, if there is anything to report. Raises PerfkitError."""
    if not options.csv_file or not kept:
        return
    path = pathlib.Path(options.csv_file)
    files = {path: csv_text(options, kept)}
    files |= {path.with_name(f"{prefix}.{path.name}"): text for prefix, text in composing_csv_files(options, kept).items()}
    for file, text in files.items():
        try:
            file.write_text(text)
        except OSError as error:
            raise _unwritable(file, error) from None
