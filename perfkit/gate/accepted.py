"""A gate and its history: accepted changes that its metrics are judged against, and the noise floor of a machine from gates of a server with itself. Pure."""

import math
import statistics
from collections.abc import Iterator, Sequence

from perfkit.clock import Date
from perfkit.errors import UsageError
from perfkit.gate.sentences import DECIDED
from perfkit.gate.verdict import Comparison, Verdict
from perfkit.history.accepted import LARGEST_SLOWDOWN, AcceptedChange, AcceptedChanges
from perfkit.history.check import NOT_JUDGED
from perfkit.history.series import Figure, HistoryEntry, HistoryRecord, Series, model_of, payload_of
from perfkit.result.fingerprint import machine_facts, payload_digests
from perfkit.result.json_file import as_list, as_mapping

_STEP = 0.001  # an accepted slowdown is rounded up to a tenth of a per cent


def acceptance_notes(comparisons: Sequence[Comparison], accepted: AcceptedChanges) -> Iterator[str]:
    """Sentences about the accepted changes that comparisons were judged against, and about those that have expired."""
    for one in comparisons:
        if one.accepted is not None:
            yield (
                f"{one.title}: a slowdown of up to {one.accepted.amount} is accepted until {one.accepted.expires}: "
                f"{_as_end(one.accepted.reason)}"
            )
        elif one.gated and (expired := accepted.find_expired(one.metric, one.lasting_load_point or one.load_point)):
            yield (
                f"{one.title}: the acceptance of a slowdown of up to {expired.amount} expired on {expired.expires}: the regression counts "
                f"again. It was accepted because: {_as_end(expired.reason)}"
            )


def accept_verdict(verdict: Verdict, metrics: Sequence[str], *, reason: str, accepted: Date, expires: Date) -> list[AcceptedChange]:
    """Accepted changes of a verdict's regressed metrics, or of the named ones at each load point where they are slower.

    Up to the upper end of each interval is accepted, rounded up. Raises UsageError if there is nothing to accept, or no upper end.
    """
    if verdict.kind in ("invalid", "incomparable") or not verdict.gated:
        raise UsageError(f"this verdict is {verdict.kind}: it measures no change that could be accepted; run the gate again")
    if unknown := [name for name in metrics if name not in {one.metric for one in verdict.gated}]:
        known = ", ".join(dict.fromkeys(one.metric for one in verdict.gated))
        raise UsageError(f"--metric {unknown[0]}: the verdict does not gate it; it gates {known}")
    chosen = [one for one in verdict.gated if (one.metric in metrics if metrics else one.verdict == "regressed")]
    if not chosen:
        raise UsageError(
            f"this verdict is {verdict.kind}, and no metric has regressed: there is nothing to accept; --metric chooses others"
        )
    commit = _candidate_commit(verdict)
    changes = []
    for one in chosen:
        slowdown = one.ruled_out_slowdown
        if slowdown is None or slowdown > LARGEST_SLOWDOWN:
            raise UsageError(
                f"{one.title}: its slowdown has no upper limit that could be accepted: measure more pairs, or choose with --metric"
            )
        if slowdown > 0:
            changes.append(
                AcceptedChange(
                    scenario=verdict.scenario,
                    metric=one.metric,
                    load_point=one.lasting_load_point or one.load_point,
                    slowdown=round(math.ceil(slowdown / _STEP - 1e-9) * _STEP, 6),
                    reason=reason,
                    accepted=accepted,
                    expires=expires,
                    commit=commit,
                )
            )
    if not changes:
        raise UsageError("none of these metrics is slower than the baseline: there is nothing to accept")
    return changes


def _candidate_commit(verdict: Verdict) -> str:
    """The commit that the candidate was built from, as far as the verdict knows it; empty if unknown."""
    commits = as_list(as_mapping(verdict.environment.get("candidate")).get("commits"))
    if verdict.mode == "stored":
        return str(commits[0]) if len(commits) == 1 else ""
    return str(as_mapping(verdict.environment.get("source")).get("commit") or "")


def _as_end(reason: str) -> str:
    """A reason as the end of a sentence."""
    text = reason.strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."


NOISE = "noise_"
"""Before a metric's name: the standard deviation of its differences over the pairs."""
_FEWEST_PAIRS = 3


def record_of_canary(verdict: Verdict, source: str, *, branch: str = "", machine: str = "") -> HistoryRecord:
    """What a history stores of a gate of a server against itself, or of a gate's control pairs; raises UsageError for other verdicts."""
    comparisons = verdict.control or (verdict.comparisons if verdict.baseline == verdict.candidate else ())
    if verdict.mode != "paired" or not comparisons:
        raise UsageError(
            f"{source}: this verdict does not compare a server with itself, so it does not tell the machine's noise: give --baseline and "
            "--candidate the same target, or measure control pairs (--control 10)"
        )
    environment, target = verdict.environment, as_mapping(verdict.environment.get("baseline"))
    generator, origin = as_mapping(environment.get("generator")), as_mapping(environment.get("source"))
    facts = {"payload": payload_digests(target), "model": environment.get("model"), **machine_facts(environment)}
    host, own_branch = str(generator.get("host_id") or ""), str(origin.get("branch") or "")
    series = Series(
        scenario=verdict.scenario,
        kind="canary",
        branch=branch or ("" if own_branch == "HEAD" else own_branch),
        machine=machine or host,
        model=model_of(facts),
        payload=payload_of(facts),
    )
    entry = HistoryEntry(verdict.started_at, str(origin.get("commit") or ""), host, facts, source)
    is_valid = bool(verdict.control) or verdict.kind in DECIDED
    return HistoryRecord(series, verdict.kind, entry, tuple(figure for one in comparisons for figure in _figures(one, is_valid=is_valid)))


def _figures(one: Comparison, *, is_valid: bool) -> Iterator[Figure]:
    load_point, differences = one.lasting_load_point or one.load_point, _differences(one)
    if len(differences) >= _FEWEST_PAIRS and (noise := statistics.stdev(differences)) > 0:
        yield Figure(load_point, NOISE + one.metric, "share", noise, is_valid)
    if one.minimum_detectable_effect:
        yield Figure(load_point, NOT_JUDGED + one.metric, "share", one.minimum_detectable_effect, is_valid)


def _differences(one: Comparison) -> list[float]:
    """The candidate's difference in each pair: of logarithms, or of shares."""
    pairs = zip(one.baseline_values, one.candidate_values, strict=True)
    if one.scale == "difference":
        return [second - first for first, second in pairs if first is not None and second is not None]
    return [math.log(second / first) for first, second in pairs if first and second]
