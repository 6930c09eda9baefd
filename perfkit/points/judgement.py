"""The warnings about a load point's figures: what they lack, and what may have disturbed them."""

from collections.abc import Iterator, Mapping, Sequence

from perfkit.errors import MeasurementWarning
from perfkit.points.measured import DISTURBING_CPUS, describe_processes
from perfkit.recorder.failures import FailureKind
from perfkit.result.counts import Requests, Tokens
from perfkit.result.distribution import QUANTILES
from perfkit.result.generator import Generator
from perfkit.result.point_parts import IdleGaps
from perfkit.scenario.model import USEFUL_GAPS
from perfkit.stats.buckets import BucketCounts
from perfkit.stats.percentiles import GROUPS, PercentileInterval, is_withheld, minimum_samples
from perfkit.stats.slo import CheckedAnswers
from perfkit.units import NS_PER_S, format_duration_ns

_RETRANSMIT_SHARE, _FEWEST_RETRANSMITS = 0.001, 10
_TCP_TIMEOUT_NS = 200_000_000  # the least time-out before Linux sends a segment again (TCP_RTO_MIN)
_BUSY_MACHINE_SHARE = 0.85
_STALL_NS = 50_000_000
_TOLD_MESSAGES = 3


def busy_machine_warnings(generator: Generator, cpus: int, *, has_disturbed: bool) -> list[MeasurementWarning]:
    """A warning if other processes kept the machine busy, or used a CPU noticeably while the generator was disturbed."""
    others = generator.others
    if others is None or others.cpus < DISTURBING_CPUS:
        return []
    if not has_disturbed and (generator.machine_cpu_share or 0.0) < _BUSY_MACHINE_SHARE:
        return []
    named = f": {describe_processes(others)}" if others.busiest else ", which perfkit cannot see"
    if others.may_include_target:
        besides = "besides perfkit"
        hint = (
            "The target itself may be among them, because perfkit cannot see which processes serve its address: another user's or a "
            "container's. Long times, late starts and stops may be due to the others. End those, or measure from another machine."
        )
    else:
        besides = "besides perfkit and the target"
        hint = "Long times, late starts and stops may be due to them. End them, or measure from another machine."
    message = f"This machine was busy: processes {besides} used {others.cpus:.1f} of its {cpus} CPUs{named}. {hint}"
    return [MeasurementWarning("busy_machine", message)]


def network_warnings(generator: Generator, longest_ns: int) -> list[MeasurementWarning]:
    """A warning if the network may have lost packets, and the longest service time is long enough for TCP's time-out after a loss."""
    tcp = generator.tcp
    if tcp is None or longest_ns < _TCP_TIMEOUT_NS or tcp.retransmits < max(_FEWEST_RETRANSMITS, _RETRANSMIT_SHARE * tcp.segments_sent):
        return []
    resent = f"{tcp.retransmits:,} of {tcp.segments_sent:,} TCP segments of this machine were sent again"
    return [
        MeasurementWarning(
            "tcp_retransmits", f"{resent}: the network may have lost packets, and a lost packet delays its request by 200 ms or more."
        )
    ]


def idle_warnings(idle: IdleGaps, window_s: float, repetitions: int) -> Iterator[MeasurementWarning]:
    """A warning if the penalty is unknown or its interval is wide, with the window that each repetition needs."""
    if idle.gaps < USEFUL_GAPS or idle.penalty_ns is None:
        needed, each_s = max(USEFUL_GAPS, 2 * idle.gaps if idle.penalty_ns is None else 0), window_s / max(idle.gaps, 1)
        duration = format_duration_ns(1.1 * needed / repetitions * each_s * NS_PER_S)
        found = (
            f"Only {idle.gaps} idle gaps: the penalty of the first request {'is unknown' if idle.penalty_ns is None else 'is uncertain'}"
        )
        yield MeasurementWarning("few_gaps", f"{found}. {needed} need windows of about {duration}.")


def schedule_warnings(without_slot: int, scheduled: int, pacing_delay: BucketCounts | None) -> Iterator[MeasurementWarning]:
    """Warnings about arrivals that were dropped, and about those that were sent late in a burst."""
    if without_slot:
        dropped = f"{without_slot:,} of {scheduled:,} arrivals were dropped because max_in_flight requests were in flight"
        yield MeasurementWarning("dropped", f"{dropped}. Raise max_in_flight, or lower the rate.")
    if pacing_delay is not None and pacing_delay.count and pacing_delay.max_ns > _STALL_NS:
        stall = format_duration_ns(pacing_delay.max_ns)
        yield MeasurementWarning("burst", f"The load generator stalled for up to {stall}, and then sent the overdue requests in a burst.")


def outcome_warnings(
    requests: Requests, failures: Sequence[tuple[FailureKind, int]], answers: CheckedAnswers
) -> Iterator[MeasurementWarning]:
    """Warnings about failed requests, with their most frequent messages, and about wrong answers."""
    failed = {name: number for name, number in requests.outcomes.items() if number and name not in ("ok", "abandoned")}
    if failed:
        listed = ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in failed.items())
        told = [(kind, count) for kind, count in failures if kind.message][:_TOLD_MESSAGES]
        messages = "; ".join(f"{count:,} × {f'{kind.status}: ' if kind.status else ''}{kind.message}" for kind, count in told)
        yield MeasurementWarning("failed_requests", f"Some requests failed: {listed}{f' ({messages})' if messages else ''}.")
    if answers.wrong and (interval := answers.interval()) is not None and answers.checked < answers.answers:
        low, high = interval
        others = (
            f"the other {answers.answers - answers.checked:,} were not checked and count as ok, so {low:.2%} to {high:.2%} of all are wrong"
        )
        yield MeasurementWarning("invalid_output", f"{answers.wrong:,} of the {answers.checked:,} checked answers are wrong; {others}.")


def sample_warnings(times: BucketCounts, requests: Requests, intervals: Mapping[float, PercentileInterval]) -> Iterator[MeasurementWarning]:
    """Warnings about percentiles with too few times, and about those that are only lower bounds."""
    count, censored = times.count, requests.timed_out + requests.unfinished
    if not count:
        yield MeasurementWarning("no_samples", "No request of this point succeeded.")
        return
    shown = {name: quantile for name, quantile in QUANTILES.items() if not is_withheld(quantile, count)}
    needed = {
        name: one.needed_samples if (one := intervals.get(quantile)) else minimum_samples(quantile) for name, quantile in shown.items()
    }
    few = [name for name in shown if count < needed[name]]
    if few:
        samples, last = f"at least {needed[few[-1]]:,} are needed", intervals.get(shown[few[-1]])
        if last is not None and last.precision.is_correlated:
            seen = f"about {last.groups:.0f}" if last.groups >= 1 else "less than one"
            samples = f"slow requests come in groups, of which {GROUPS} are needed above it (seen: {seen}), in at least {needed[few[-1]]:,} requests"
        yield MeasurementWarning("few_samples", f"Too few samples for {few[-1].replace('_', '.')}: {samples}; measure longer.")
    bounds = [name for name, quantile in shown.items() if int(quantile * count + 0.5) > count - censored]
    if bounds:
        unanswered = f"they fall among the {censored} requests that were not answered in time"
        yield MeasurementWarning("censored", f"{bounds[0].replace('_', '.')} and higher percentiles are lower bounds: {unanswered}.")
    if times.clamped:
        yield MeasurementWarning("clamped", f"{times.clamped} times are above one hour, and count as one hour.")


def token_warnings(tokens: Tokens, unreported: int, without_time: int) -> Iterator[MeasurementWarning]:
    """Warnings about token figures that are withheld, and about events that are not tokens.

    So many further answers do not report their tokens, and so many of those that do have no known time per token.
    """
    answers = tokens.reported + unreported
    if unreported:
        whose = (
            "No answer reports its tokens" if not tokens.reported else f"{unreported:,} of {answers:,} answers do not report their tokens"
        )
        reason = "have no `usage`, or one that cannot be"
        yield MeasurementWarning(
            "tokens_unreported",
            f"{whose}: they {reason}. Rates of tokens are withheld, since perfkit counts what the server reports alone.",
        )
    if without_time:
        reason = "tokens and events do not match, and the events do not all report their tokens"
        yield MeasurementWarning(
            "first_tokens_unknown", f"The time per output token of {without_time:,} of {answers:,} answers is withheld: {reason}."
        )
    if several := tokens.several_in_event:
        share = f"{several:,} of {tokens.reported:,} answers have more tokens than events"
        yield MeasurementWarning(
            "several_tokens_in_event", f"{share}: event_gap_ns is the time between events, and not that between tokens."
        )
