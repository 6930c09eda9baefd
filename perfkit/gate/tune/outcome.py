"""The outcome of a tune, `tune.json`: the answer in a sentence, and a row for each configuration. Pure."""

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from perfkit.gate.tune.folder import Progress
from perfkit.gate.tune.progress import Entry, State, TuneState
from perfkit.gate.tune.race import CONFIRMATION_ERROR, ERROR, Ratio
from perfkit.gate.tune.space import Candidate
from perfkit.result.part import Part
from perfkit.units import format_rate_per_s

SCHEMA = "perfkit.tune/1"
_MOST_NAMED = 3
_MOST_BOUND = 1.5
"""Larger bounds say nothing that helps."""

Kind = Literal["better", "kept", "undecided"]


class Row(Part):
    """One configuration."""

    number: int
    """0 is the present one."""
    values: dict[str, str]
    state: State
    """`racing`: not shown worse; `worse`; `refused` by the server; `unmet`: the SLO at any load; `invalid`: not measurable; `waiting`: not
    measured, for lack of time."""
    reason: str = ""
    """The server's words, or why it is not in the race."""
    concurrency: int | None = None
    """The requests in flight with which it is worth most, within the SLO."""
    throughput_per_s: float | None = None
    p50_ns: int | None = None
    p99_ns: int | None = None
    slo: Literal["satisfied", "violated", "inconclusive"] | None = None
    """The verdict on all its windows there; None without an SLO, and without a window."""
    windows: int = 0
    dropped_after: int = 0
    """The round after which it was shown worse; 0 if it was not."""
    better: int | None = None
    """The number of a configuration that is shown better."""
    others_better_by: float | None = None
    """The share by which the best configuration may be better than this one, at most; None if that is unknown, or it was dropped."""


class TuneOutcome(Part):
    """What a tune says."""

    schema_version: Annotated[str, Field(alias="schema")] = SCHEMA
    kind: Kind
    """`better`: another configuration is, and none is better than that one; `kept`: none is better than the present one by more than
    `indifference`; `undecided`."""
    sentence: str
    """The answer."""
    scenario: str
    target: str
    slo: dict[str, str] = Field(default_factory=dict)
    """The limits, as the scenario has them."""
    best: int | None = None
    """The number of the best configuration, as far as it is known."""
    ratio: float | None = None
    """Its throughput ÷ that of the present one, in the windows of the confirmation; None if that was not measured."""
    interval: tuple[float, float] | None = None
    """Of the ratio."""
    confidence: float = 1 - CONFIRMATION_ERROR
    """Of the interval."""
    pairs: int = 0
    """Those of the confirmation."""
    others_better_by: float | None = None
    """The share by which another configuration may be better than the best one, at most; None if that is unknown."""
    error_rate: float = ERROR
    """The chance that the best configuration was dropped, or that another one is better by more than stated."""
    indifference: float
    """The share by which another configuration may be better in a decided answer."""
    next_step: str = ""
    """What to do with the best configuration, a sentence; empty if it is the present one."""
    command: str = ""
    """That starts the server with the best configuration; empty for a running server."""
    rows: tuple[Row, ...]
    rounds: int = 0
    notes: tuple[str, ...] = ()
    """What limits the answer; sentences."""
    started_at: str
    duration_s: float
    """Without interruptions."""
    perfkit_version: str


def tune_outcome(
    state: TuneState,
    candidates: Sequence[Candidate],
    progress: Progress,
    slo: Mapping[str, str],
    duration_s: float,
    *,
    notes: Sequence[str],
) -> TuneOutcome:
    """What the windows so far say."""
    inputs = progress.inputs
    rows = tuple(_row(state, candidate, has_slo=bool(slo)) for candidate in candidates)
    decided = state.is_decided(inputs.indifference)
    best = state.leader if decided is None else decided
    ratio = None if best in (None, 0) else state.ratio(best)
    bound = None if best is None else state.bound(best)
    kind = _kind(state, best, ratio, inputs.indifference, is_decided=decided is not None)
    undecided = () if kind != "undecided" else _undecided(state, rows, best, ratio, inputs.indifference)
    return TuneOutcome(
        kind=kind,
        sentence=_sentence(kind, rows, best, ratio, bound, slo),
        scenario=str(inputs.scenario.get("name", "")),
        target=inputs.target,
        slo=dict(slo),
        best=best,
        ratio=None if ratio is None else ratio.estimate,
        interval=None if ratio is None else (ratio.low, ratio.high),
        pairs=0 if best in (None, 0) else len(state.pairs(best)),
        others_better_by=None if bound is None else bound - 1,
        indifference=inputs.indifference,
        next_step=_next_step(progress) if best and kind != "kept" else "",
        command=candidates[best].applied if best and kind != "kept" and not progress.restores else "",
        rows=rows,
        rounds=state.closed_round,
        notes=(*undecided, *notes),
        started_at=progress.started_at,
        duration_s=duration_s,
        perfkit_version=inputs.perfkit,
    )


def changes_of(rows: Sequence[Row], number: int) -> dict[str, tuple[str, str]]:
    """The keys in which a configuration differs from the present one, with both values; empty text for a key that one does not have."""
    present, values = rows[0].values, rows[number].values
    return {key: (present.get(key, ""), values.get(key, "")) for key in {**present, **values} if present.get(key) != values.get(key)}


def config_diff(present: str, best: str) -> str:
    """The difference of two configurations, as a unified diff of their JSON with sorted keys."""
    before, after = (json.dumps(json.loads(text), indent=2, sort_keys=True).splitlines(keepends=True) for text in (present, best))
    return "".join(difflib.unified_diff(before, after, "present", "best"))


def percent_text(share: float) -> str:
    """A share as a percentage, rounded up to a tenth: what a bound may say."""
    return f"{-(-1000 * share // 1) / 10:g} %"


def _kind(state: TuneState, best: int | None, ratio: Ratio | None, indifference: float, *, is_decided: bool) -> Kind:
    if not is_decided or best is None or any(entry.state in ("invalid", "waiting") for entry in state.entries):
        return "undecided"
    if best == 0:
        return "kept"
    if state.entries[0].state == "unmet":
        return "better"
    if ratio is None:
        return "undecided"
    if ratio.high <= 1 + indifference:
        return "kept"
    return "better" if ratio.low > 1 else "undecided"


def _row(state: TuneState, candidate: Candidate, *, has_slo: bool) -> Row:
    entry: Entry = state.entries[candidate.number]
    has_windows, bound = bool(entry.windows), state.bound(candidate.number)
    return Row(
        number=candidate.number,
        values=dict(candidate.values),
        state=entry.state,
        reason=entry.reason,
        concurrency=None if entry.step is None else state.ladder[entry.step],
        throughput_per_s=state.throughput_per_s(candidate.number) if has_windows else None,
        p50_ns=state.percentile_ns(candidate.number, 0.5) if has_windows else None,
        p99_ns=state.percentile_ns(candidate.number, 0.99) if has_windows else None,
        slo=state.judged(candidate.number).verdict if has_windows and has_slo else None,
        windows=len(entry.windows),
        dropped_after=entry.out_after,
        better=entry.better,
        others_better_by=None if bound is None or entry.state != "racing" else bound - 1,
    )


def _sentence(kind: Kind, rows: Sequence[Row], best: int | None, ratio: Ratio | None, bound: float | None, slo: Mapping[str, str]) -> str:
    limits = " and ".join(f"{name.replace('_', '.')} < {limit}" for name, limit in slo.items())
    under = f" under {limits}" if limits else ""
    if best is None and any(row.state in ("invalid", "waiting") for row in rows):
        return "No configuration could be measured."
    if best is None:
        return f"No configuration was found that answers requests{f' with {limits}' if limits else ''}."
    no_other = (
        ""
        if bound is None
        else "; all others are shown worse"
        if bound == 1
        else f"; no other is better by more than {percent_text(bound - 1)}"
    )
    if kind == "kept" and best != 0 and ratio is not None:
        figure = f"{ratio.estimate:.2f} times the throughput{under} [{ratio.low:.2f}, {ratio.high:.2f}]"
        return f"The present configuration is good enough: the best other one has {figure}{no_other}."
    if kind == "kept":
        more = "" if bound is None else f": none is better by more than {percent_text(bound - 1)}"
        return f"No better configuration was found than the present one{more}."
    changed = ", ".join(f"{key} {before or 'none'} → {after or 'none'}" for key, (before, after) in changes_of(rows, best).items())
    if best == 0:
        return f"The present configuration is the best so far{no_other}."
    if rows[0].state == "unmet":
        rate = rows[best].throughput_per_s or 0.0
        return f"{changed}: {format_rate_per_s(rate)}{under}, which the present configuration meets at no load{no_other}."
    if ratio is None:
        return f"{changed} leads, but it was not compared with the present configuration{no_other}."
    figure = f"{ratio.estimate:.2f} times the throughput{under} [{ratio.low:.2f}, {ratio.high:.2f}]"
    return f"{changed}: {figure}{no_other}."


def _next_step(progress: Progress) -> str:
    if not progress.restores:
        return "To use it, start the server with this command:"
    return (
        f"To use it, put best.config.pbtxt in place of config.pbtxt in the folder of model '{progress.model}', after a look at best.diff, and load "
        "the model again."
    )


def _undecided(state: TuneState, rows: Sequence[Row], best: int | None, ratio: Ratio | None, indifference: float) -> tuple[str, ...]:
    """What is undecided, as sentences."""
    found = []
    if waiting := [row for row in rows if row.state == "waiting"]:
        found.append(f"The time was over before {_named(waiting)} {'was' if len(waiting) == 1 else 'were'} measured.")
    if invalid := [row for row in rows if row.state == "invalid"]:
        found.append(f"{_named(invalid)} could not be measured: {invalid[0].reason or 'most of the windows are not valid.'}")
    alike = [row for row in rows if row.state == "racing" and row.number != best]
    if best is not None and not waiting and alike and ((bound := state.bound(best)) is None or bound > 1 + indifference):
        found.append(f"Not told apart from the best one: {_named(alike)}.")
    if best not in (None, 0) and ratio is None and rows[0].state != "unmet":
        found.append("The time was over before the best configuration was compared with the present one in 5 pairs.")
    elif ratio is not None and ratio.low <= 1 < ratio.high:
        found.append("The interval of the ratio includes 1: the best configuration may be no better than the present one.")
    return (*found, "More time decides more: --resume with a longer --time.") if found else ()


def _named(rows: Sequence[Row]) -> str:
    titles = [
        "; ".join(", ".join(f"{key} {value}" for key, value in row.values.items()) or "the present one" for row in rows[:_MOST_NAMED])
    ]
    return "".join(titles) + (f"; and {len(rows) - _MOST_NAMED} more" if len(rows) > _MOST_NAMED else "")
