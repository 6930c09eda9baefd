"""How each figure of a result's summary came about, from the counts in `result.json`. Pure."""

import dataclasses
import string
from collections.abc import Iterator, Sequence

from perfkit.figures.declaration import declared, value_at
from perfkit.report.load_points import TIMES
from perfkit.report.table import format_error_rate
from perfkit.result.distribution import QUANTILES, Distribution
from perfkit.result.model import Point, Result
from perfkit.stats.percentiles import is_withheld
from perfkit.units import NS_PER_S, format_duration_ns, format_percent, format_rate_per_s

_TIMED = ("ok", "invalid_output", "timed_out", "unfinished")
"""The outcomes whose times are in the distributions."""


@dataclasses.dataclass(frozen=True, slots=True)
class Explanation:
    """One figure of a load point: its arithmetic in words, and its value computed again."""

    figure: str
    """The path of its key in the load point of `result.json`."""
    text: str
    computed: float | None
    """None for a figure that the counts do not determine, such as a percentile."""


def explain(point: Point, result: Result) -> list[Explanation]:
    """The figures of a pooled load point, in the order of the summary."""
    repetitions = [one for one in result.points if one.key == point.key] or [point]
    return [
        *_requests(point),
        *_rates(point, repetitions),
        *_errors(point),
        *_percentiles(point),
        *_declared(point, repetitions),
        *_server(point),
        *_server_cpu(point, repetitions),
        *_generator(point, repetitions),
        *_energy(point, repetitions),
    ]


def _requests(point: Point) -> Iterator[Explanation]:
    requests = point.requests
    due = "that the schedule wanted sent" if point.response_time_ns is not None else "that were started"
    yield Explanation(
        "requests.scheduled",
        f"requests {requests.scheduled:,} = {requests.sent:,} sent + {requests.dropped:,} dropped: those {due} in the window",
        requests.sent + requests.dropped,
    )
    outcomes = [(name, count) for name, count in requests.outcomes.items() if count or name == "ok"]
    listed = " + ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in outcomes)
    yield Explanation("requests.sent", f"sent {requests.sent:,} = {listed}", sum(count for _, count in outcomes))


def _rates(point: Point, repetitions: Sequence[Point]) -> Iterator[Explanation]:
    finished = _counts(repetitions, "throughput_per_s")
    seconds, window_s = _windows(repetitions)
    ok, beyond = point.requests.ok, point.requests.ok - sum(finished)
    direction = "more" if beyond > 0 else "fewer"
    rest = f"; of the window's own {ok:,} ok requests, {abs(beyond):,} {direction} finished after its end than older ones finished in it"
    rest = rest if beyond else ""
    failed = [f"{count:,} {name.replace('_', ' ')}" for name, count in point.requests.outcomes.items() if count and name != "ok"]
    without = f"; not counted: {', '.join(failed)}" if failed else ""
    throughput = f"{_sum_text(finished)} ok answers that finished in the window ÷ {seconds}"
    yield Explanation(
        "throughput_per_s",
        f"throughput {format_rate_per_s(point.throughput_per_s)} = {throughput}{rest}{without}",
        _divided(finished, window_s),
    )
    inferences = _counts(repetitions, "inferences_per_s")
    size = sum(inferences) / sum(finished) if sum(finished) else 1.0
    batches = f"{_sum_text(finished)} ok answers × {size:.6g} inferences each" if size != 1 else f"{_sum_text(finished)} ok answers"
    yield Explanation(
        "inferences_per_s",
        f"inferences {format_rate_per_s(point.inferences_per_s)} = {batches} ÷ {seconds}",
        _divided(inferences, window_s),
    )
    if point.goodput_per_s is not None:
        good = _counts(repetitions, "goodput_per_s")
        met = f"{_sum_text(good)} of these answers that also met the SLO's limits ÷ {seconds}"
        yield Explanation("goodput_per_s", f"goodput {format_rate_per_s(point.goodput_per_s)} = {met}", _divided(good, window_s))


def _errors(point: Point) -> Iterator[Explanation]:
    requests = point.requests
    if requests.judged:
        given_up = f" and not given up ({requests.abandoned:,} were)" if requests.abandoned else ""
        counts = f"1 - {requests.ok:,} ok ÷ {requests.judged:,} scheduled{given_up}, {requests.failed:,} failed or dropped"
        yield Explanation("error_rate", f"errors {format_error_rate(point.error_rate)} = {counts}", requests.error_rate)
    if point.checked and point.wrong_answer_rate is not None:
        whose = f"{point.checked_answers.wrong:,} wrong answers among {point.checked:,} that were compared with what was expected"
        yield Explanation("wrong_answer_rate", f"wrong answers {format_error_rate(point.wrong_answer_rate)}: {whose}", None)


def _percentiles(point: Point) -> Iterator[Explanation]:
    times, requests = point.times, point.requests
    key = "service_time_ns" if point.response_time_ns is None else "response_time_ns"
    parts = " + ".join(f"{count:,} {name.replace('_', ' ')}" for name in _TIMED if (count := getattr(requests, name)))
    definition = TIMES[point.times_name]
    yield Explanation(f"{key}.count", f"times {times.count:,} = {parts or 0}: {definition}", requests.timed)
    for name, quantile in QUANTILES.items():
        value_ns = getattr(times, name)
        if value_ns is None:
            if times.count and is_withheld(quantile, times.count):
                yield Explanation(
                    f"{key}.{name}", f"{name.replace('_', '.')} is left out: it needs {round(1 / (1 - quantile)):,} times", None
                )
            continue
        rank = max(int(quantile * times.count + 0.5), 1)
        where = f"rank {rank:,} of {times.count:,} times in ascending order, {times.count - rank:,} beyond it"
        yield Explanation(
            f"{key}.{name}", f"{name.replace('_', '.')} {format_duration_ns(value_ns)}: {where}{_interval(point, name)}", None
        )
    if times.count:
        yield Explanation(f"{key}.max", f"max {format_duration_ns(times.max)}: the longest of {times.count:,} times", None)


def _interval(point: Point, name: str) -> str:
    if name not in point.intervals:
        return ""
    low_ns, high_ns = point.intervals[name]
    high = "an unknown end" if high_ns is None else format_duration_ns(high_ns)
    effective = f", as from {point.effective_samples[name]:,.0f} independent requests" if name in point.effective_samples else ""
    return f"; 95% interval {format_duration_ns(low_ns)} to {high}{effective}"


def _declared(point: Point, repetitions: Sequence[Point]) -> Iterator[Explanation]:
    """The figures whose declaration explains them; a recorded count is the sum of its repetitions'."""
    for one in declared(Point):
        value = one.value_of(point)
        if value is None or not one.figure.explained:
            continue
        words = one.path.removesuffix("_ns").replace(".", " ").replace("_", " ")
        part = value_at(point, one.owner)
        how = one.figure.explained.format_map({name: getattr(part, name) for name in _names(one.figure.explained)})
        if isinstance(value, Distribution):
            for name in one.figure.percentiles:
                if (value_ns := getattr(value, name)) is not None:
                    yield Explanation(f"{one.path}.{name}", f"{words} {name} {format_duration_ns(value_ns)}: {how}", None)
        elif one.figure.unit == "ns":
            yield Explanation(one.path, f"{words} {format_duration_ns(value)}: {how}", None)
        else:
            sums = sum(one.value_of(repetition) or 0 for repetition in repetitions)
            is_count = one.figure.unit == "count" and bool(one.figure.recorded)
            yield Explanation(one.path, f"{words} {value:,.6g}: {how}", sums if is_count else None)


def _names(text: str) -> list[str]:
    """The figures that a text names in braces."""
    return [name for _, name, _, _ in string.Formatter().parse(text) if name]


def _server(point: Point) -> Iterator[Explanation]:
    server = point.server
    if server is None:
        return
    if server.mean_batch is not None and server.executions:
        counts = f"{server.inferences:,} inferences ÷ {server.executions:,} executions"
        computed = server.inferences / server.executions
        yield Explanation("server.mean_batch", f"server mean batch {server.mean_batch:.2f} = {counts}", computed)
    if server.client_mean_ns is not None:
        client = (
            f"the mean service time of {server.client_requests:,} requests that perfkit saw answered over the same time"
            if server.source == "statistics"
            else "the mean service time of the window"
        )
        yield Explanation("server.client_mean_ns", f"client mean {format_duration_ns(server.client_mean_ns)}: {client}", None)


def _server_cpu(point: Point, repetitions: Sequence[Point]) -> Iterator[Explanation]:
    """From the repetitions whose CPU time is known."""
    known = [(one, cpu) for one in repetitions if (cpu := one.server_cpu) is not None]
    if point.server_cpu is None or not known:
        return
    used_s = sum(cpu.cpus * one.duration_s for one, cpu in known)
    seconds, window_s = _windows([one for one, _ in known])
    used = f"{used_s:.4g} s of user and system time of all its processes"
    yield Explanation("server_cpu.cpus", f"server CPUs {point.server_cpu.cpus:.2f} = {used} ÷ {seconds}", used_s / window_s)
    finished = _counts([one for one, _ in known], "throughput_per_s")
    if not (count := sum(finished)):
        return
    answers = f"{_sum_text(finished)} ok answers that finished in the window"
    if (time_ns := point.server_cpu.time_per_request_ns) is not None:
        text = f"server CPU time {format_duration_ns(time_ns)} a request = {used} ÷ {answers}"
        yield Explanation("server_cpu.time_per_request_ns", text, NS_PER_S * used_s / count)
    if (instructions := point.server_cpu.instructions_per_request) is not None:
        total = sum((cpu.instructions_per_request or 0.0) * answered for (_, cpu), answered in zip(known, finished, strict=True))
        text = f"server instructions {instructions:,.0f} a request = {total:,.0f} in user mode ÷ {answers}"
        yield Explanation("server_cpu.instructions_per_request", text, total / count)


def _generator(point: Point, repetitions: Sequence[Point]) -> Iterator[Explanation]:
    seconds, window_s = _windows(repetitions)
    if not window_s:
        return
    busy_s = sum(one.generator.cpu_share * one.duration_s for one in repetitions)
    workers = f"{point.generator.workers} processes" if point.generator.workers > 1 else "1 process"
    text = f"generator CPU {format_percent(point.generator.cpu_share, 1)} of a core = {busy_s:.4g} s of CPU time ÷ {seconds}, {workers}"
    yield Explanation("generator.cpu_share", text, busy_s / window_s)


def _energy(point: Point, repetitions: Sequence[Point]) -> Iterator[Explanation]:
    energies = [gpu.energy_j for gpu in point.server_gpus if not gpu.mig]
    inferences = sum(_counts(repetitions, "inferences_per_s"))
    if point.energy_per_inference_j is None or not inferences:
        return
    total_j = sum(one for one in energies if one is not None)
    text = f"energy {point.energy_per_inference_j:,.3g} J = {total_j:,.6g} J of {len(energies)} GPUs ÷ {inferences:,} inferences"
    yield Explanation("energy_per_inference_j", text, total_j / inferences)


def _counts(repetitions: Sequence[Point], name: str) -> list[int]:
    """What a rate counted, in each repetition."""
    return [round((getattr(one, name) or 0.0) * one.duration_s) for one in repetitions]


def _windows(repetitions: Sequence[Point]) -> tuple[str, float]:
    """The length of the windows in words and in seconds."""
    lengths = [one.duration_s for one in repetitions]
    listed = " + ".join(f"{one:.3f}" for one in lengths)
    return (f"{listed} s" if len(lengths) == 1 else f"({listed}) s"), sum(lengths)


def _sum_text(counts: Sequence[int]) -> str:
    return f"{counts[0]:,}" if len(counts) == 1 else f"({' + '.join(f'{one:,}' for one in counts)} = {sum(counts):,})"


def _divided(counts: Sequence[int], seconds: float) -> float:
    return sum(counts) / seconds if seconds else 0.0
