"""A perf_analyzer command as it runs: load after load, until the sweep ends; then its summary and its files."""

import dataclasses
import enum
import os
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from perfkit.errors import PerfkitError
from perfkit.perf_analyzer.command_line import load_values
from perfkit.perf_analyzer.measured_load import MeasuredLoad, measured_load
from perfkit.perf_analyzer.notes import in_options
from perfkit.perf_analyzer.options import Options
from perfkit.perf_analyzer.reports import Report, composing_csv_files, csv_text
from perfkit.perf_analyzer.server_calls import ModelTraits, known_options
from perfkit.perf_analyzer.windows import Window, is_over_threshold, is_stable, last_windows, loads, windows_to_begin_with


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

    def ask_servers(self) -> Sequence[ModelTraits]:
        """What the server of each command says of its model; called before the first load. Raises PerfkitError, and Interrupted."""

    def warm_up(self, value: float) -> None:
        """Sends the requests of `--warmup-request-count` with the load, and throws them away."""

    def measure(self, value: float, count: int) -> Sequence[Sequence[Window]]:
        """Measures so many windows of a load, and returns them for each model; raises PerfkitError, and Interrupted."""


@dataclasses.dataclass(frozen=True)
class Output:
    """Where the command writes lines."""

    write: Callable[[str], None]
    """A line of stdout."""
    complain: Callable[[str], None]
    """A line of stderr."""


def profile(options: Sequence[Options], measurement: Measurement, output: Output) -> ExitCode:
    """Measures the loads of a command, or of several that run at the same time, each with a model of its own; writes their reports.

    Raises PerfkitError before any measurement if a file of `-f` cannot be written, or a server does not know the model.
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
        try:
            self._ask_servers()
            code = self._sweep()
        except Interrupted:
            self._output.write("Waiting for in-flight inferences to complete.")
            code = ExitCode.DONE
        for options, report, kept in zip(self._options, self._reports, self._kept, strict=True):
            self._write(report.summary(kept))
            try:
                write_csv(options, kept)
            except PerfkitError as error:  # what else is written stays
                self._output.complain(f"error: {error}")
                code = ExitCode.FAILED
        return code

    def _ask_servers(self) -> None:
        traits = self._measurement.ask_servers()
        self._options = [known_options(one, of_model) for one, of_model in zip(self._options, traits, strict=True)]
        self._leading = self._options[0]
        self._reports = [Report(one) for one in self._options]
        for report, of_model in zip(self._reports, traits, strict=True):
            self._write(report.settings(is_decoupled=of_model.is_decoupled))

    def _sweep(self) -> ExitCode:
        count, sweep = 0, loads(self._leading)
        try:
            value = next(sweep)
            while True:
                count += 1
                value = sweep.send(self._measure(value))
        except StopIteration:
            is_linear = not self._leading.is_binary_search and self._leading.load_mode != "request_intervals"
            if count == 1 and is_linear and not self._is_last_stable:
                self._output.complain("Failed to obtain stable measurement.")
                return ExitCode.UNSTABLE
        except NoRequestsError as error:
            self._output.complain(str(error))
            return ExitCode.NO_REQUESTS
        except PerfkitError as error:
            self._output.complain(f"error: {in_options(str(error), self._leading)}")
            return ExitCode.FAILED
        return ExitCode.DONE

    def _measure(self, value: float) -> bool:
        """Measures a load until it is stable, and reports it if it is below the threshold, too; whether both hold."""
        self._write(self._reports[0].load_begins(value))
        if any(one.warmup_request_count for one in self._options):
            self._measurement.warm_up(value)
        windows = self._measure_windows(value)
        stable = [self._is_stable(*pair) for pair in zip(windows, self._options, strict=True)]
        self._is_last_stable = all(stable)
        if not self._is_last_stable:
            self._output.complain(_unstable(self._leading, value))
            return False
        measured = [
            measured_load(last_windows(of_model), one, own_value)
            for of_model, one, own_value in zip(windows, self._options, load_values(self._options, value), strict=True)
        ]
        for load, one in zip(measured, self._options, strict=True):
            if load.is_above(one.latency_threshold_ms):
                self._output.complain(f"Measured latency went over the set limit of {one.latency_threshold_ms} msec. ")
                return False
        for report, kept, load in zip(self._reports, self._kept, measured, strict=True):
            kept.append(load)
            if report is not self._reports[0]:
                self._write(report.load_begins(load.value))
            self._write(report.load(load))
        return True

    def _measure_windows(self, value: float) -> list[list[Window]]:
        """Three windows of each model, and further ones until the last three agree or the trials are used up."""
        windows: list[list[Window]] = [[] for _ in self._options]
        count = windows_to_begin_with(self._leading)
        while True:
            for of_model, new, report in zip(windows, self._measurement.measure(value, count), self._reports, strict=True):
                _check_answers(new)
                if report.is_verbose:
                    self._write(report.window_passes(new, len(of_model)))
                of_model.extend(new)
            pairs = list(zip(windows, self._options, strict=True))
            is_done = all(is_stable(*pair) for pair in pairs) or any(is_over_threshold(*pair) for pair in pairs)
            if is_done or len(windows[0]) >= self._leading.max_trials:
                break
            count = 1
        if any(not window.requests for of_model in windows for window in last_windows(of_model)):
            raise NoRequestsError("No valid requests recorded within time interval. Please use a larger time window.")
        return windows

    def _is_stable(self, windows: Sequence[Window], options: Options) -> bool:
        """Whether the windows are stable; for calls that nobody waits for, a stable throughput is enough in the end."""
        if is_stable(windows, options):
            return True
        is_enough = options.is_async and is_stable(windows, options, checks_latency=False)
        if is_enough:
            self._output.complain("Warning: Request latency is not stabilizing. Please try lowering the request rate.")
        return is_enough

    def _write(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._output.write(line)


class NoRequestsError(PerfkitError):
    """No request was answered in the measured windows."""


def _check_answers(windows: Sequence[Window]) -> None:
    """Raises PerfkitError for failed requests, at which perf_analyzer ends."""
    for window in windows:
        run = window.run
        if run.failed:
            words = next((failure.message or failure.outcome for failure in run.failures), "without a reason")
            raise PerfkitError(
                "Failed to maintain requested inference load. Worker thread(s) failed to generate concurrent requests.\n"
                f"{run.failed} of {run.sent} requests failed, most of them with: {words}"
            )


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
