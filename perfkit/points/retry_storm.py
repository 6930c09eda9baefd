"""Whether retries alone kept a target overloaded after an incident that was over. Pure."""

import statistics

from perfkit.errors import MeasurementWarning
from perfkit.points.measured import PointMeasurement

_FEWEST_SECONDS, _FEWEST_REQUESTS, _FEWEST_CALM_SECONDS = 5, 50, 3
_LEAST_RETRIES, _MOST_ANSWERED = 0.5, 0.5
_CALM_RETRIES, _NEARLY_ALL = 0.1, 0.9


def retry_storm_warnings(measured: PointMeasurement) -> list[MeasurementWarning]:
    """A warning if, in the last third of an open loop's window, all of this holds at once.

    Of the requests offered at most half were answered, at least half as many retries were sent, and the server executed at least as many as
    were offered, but less than 90 % of the attempts. So it had time for all requests, not for all attempts, and spent it on those that nobody
    waited for any more. And before, in three seconds or more with at most one retry for ten requests, it had answered at least 90 % of that
    rate, by the median of these seconds. A target that stood still, or became slower than the rate, executed less; one that executed all
    attempts had time to spare.

    The last third must have five seconds and fifty requests. Without samples of the server's own counters nothing is said.
    """
    window, executed_per_s = measured.window, measured.executed_late_per_s
    third = window.length_ns // 10**9 // 3
    # of several addresses, the counters of one are sampled
    is_judged = measured.has_retries and measured.is_open and not measured.load_varies and not window.by_address
    if not is_judged or executed_per_s is None or third < _FEWEST_SECONDS:
        return []
    attempts, retries, answered = window.attempts_per_s[: 3 * third], window.retries_per_s[: 3 * third], window.finished_per_s[: 3 * third]
    requests = [sent - again for sent, again in zip(attempts, retries, strict=True)]
    offered, again, ok = (sum(series[-third:]) for series in (requests, retries, answered))
    calm = [second for second in range(2 * third) if requests[second] and retries[second] <= _CALM_RETRIES * requests[second]]
    if offered < _FEWEST_REQUESTS or len(calm) < _FEWEST_CALM_SECONDS:
        return []
    # the median: requests of the second in which the incident began had not failed yet
    before_per_s, offered_per_s = statistics.median(answered[second] for second in calm), offered / third
    is_collapsed = ok <= _MOST_ANSWERED * offered and again >= _LEAST_RETRIES * offered
    is_for_attempts = offered_per_s <= executed_per_s < _NEARLY_ALL * (offered + again) / third
    if not (is_collapsed and is_for_attempts) or before_per_s < _NEARLY_ALL * offered_per_s:
        return []
    all_per_s = (*(count / third for count in (offered + again, again, ok, offered)), executed_per_s, before_per_s)
    rates = [f"{per_s:,.0f}" if per_s >= 100 else f"{per_s:.3g}" for per_s in all_per_s]
    message = (
        f"The retries keep the server overloaded: of {rates[0]} attempts a second in the last third of the window {rates[1]} were retries, and "
        f"{rates[2]} of {rates[3]} requests were answered, although the server executed {rates[4]} a second and had answered {rates[5]} before. "
        "What it executes is for attempts that nobody waits for any more."
    )
    return [MeasurementWarning("retry_storm", message)]
