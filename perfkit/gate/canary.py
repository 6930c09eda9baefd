"""The noise floor of a machine, from gates that compare a server with itself, as results of a history. Pure."""

import math
import statistics
from collections.abc import Iterator

from perfkit.errors import UsageError
from perfkit.gate.verdict import Comparison, Verdict
from perfkit.history.series import Figure, HistoryEntry, HistoryRecord, Series, model_of, payload_of
from perfkit.result.fingerprint import machine_facts, payload_digests
from perfkit.result.json_file import as_mapping

NOISE, EFFECT = "noise_", "mde_"
"""Before a metric's name: the standard deviation of its differences over the pairs, and its minimum detectable effect."""
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
    is_valid = bool(verdict.control) or verdict.kind in ("pass", "regressed", "inconclusive")
    return HistoryRecord(series, verdict.kind, entry, tuple(figure for one in comparisons for figure in _figures(one, is_valid=is_valid)))


def _figures(one: Comparison, *, is_valid: bool) -> Iterator[Figure]:
    load_point, differences = one.lasting_load_point or one.load_point, _differences(one)
    if len(differences) >= _FEWEST_PAIRS and (noise := statistics.stdev(differences)) > 0:
        yield Figure(load_point, NOISE + one.metric, "share", noise, is_valid)
    if one.minimum_detectable_effect:
        yield Figure(load_point, EFFECT + one.metric, "share", one.minimum_detectable_effect, is_valid)


def _differences(one: Comparison) -> list[float]:
    """The candidate's difference in each pair: of logarithms, or of shares."""
    pairs = zip(one.baseline_values, one.candidate_values, strict=True)
    if one.scale == "difference":
        return [second - first for first, second in pairs if first is not None and second is not None]
    return [math.log(second / first) for first, second in pairs if first and second]
