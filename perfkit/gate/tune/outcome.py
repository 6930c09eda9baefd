"""The outcome of a tune, `tune.json`: the answer in a sentence, and a row for each configuration. Pure."""

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from perfkit.gate.tune.effects import Effect, effects_of
from perfkit.gate.tune.folder import Progress
from perfkit.gate.tune.intervals import p99_interval_ns, throughput_interval_per_s
from perfkit.gate.tune.moves import SearchSpace
from perfkit.gate.tune.progress import Entry, State, TuneState
from perfkit.gate.tune.race import CONFIRMATION_ERROR, ERROR, FIRST_LOOK, Answer, Ratio
from perfkit.gate.tune.space import Candidate
from perfkit.result.part import Part
from perfkit.scenario.measure import ObjectiveName
from perfkit.units import format_rate_per_s

SCHEMA = "perfkit.tune/1"
_MOST_NAMED = 3
_NOT_COMPARED = ("refused", "failed", "unmet", "invalid")

Kind = Literal["better", "kept", "undecided"]


class Row(Part):
    """One configuration."""

    number: int
    """0 is the present one."""
    values: dict[str, str]
    state: State
    """`racing`: not shown worse; `worse`; `refused` by the server; `failed`: the server was lost, or gave no usable answer, while it was
    measured; `unmet`: the SLO, or a limit on what the server uses, at any load; `invalid`: not measurable; `waiting`: not measured, for lack of time."""
    reason: str = ""
    """The server's words, or why it is not in the race."""
    concurrency: int | None = None
    """The requests in flight with which it is worth most, within the SLO; 0 for arrivals at a rate."""
    throughput_per_s: float | None = None
    throughput_interval_per_s: tuple[float, float] | None = None
    """The 95 % interval of the throughput, from the differences between windows; None with fewer than three windows."""
    p50_ns: int | None = None
    p99_ns: int | None = None
    p99_interval_ns: tuple[int, int | None] | None = None
    """The 95 % interval of the p99; without an upper end where too few requests lie above it."""
    server_cpus: float | None = None
    """How many CPUs the server's processes kept busy; None if that is not known."""
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
    """The outcome of a tune, as `tune.json` holds it."""

    schema_version: Annotated[str, Field(alias="schema")] = SCHEMA
    kind: Kind
    """`better`: another configuration is, and none is better than that one by more than `indifference`; `kept`: none is better than the
    present one by more than `indifference`; `undecided`. The SLO is shown to be met by the chosen configuration in a decided answer."""
    sentence: str
    """The answer in a sentence."""
    scenario: str
    target: str
    objective: ObjectiveName = "goodput"
    rate_per_s: float | None = None
    """The rate of the arrivals; only for `latency`."""
    slo: dict[str, str] = Field(default_factory=dict)
    """The limits, as the scenario has them."""
    space: int
    """The number of configurations in the space; `rows` has those that were measured, or that the first round was to measure."""
    unmeasured_neighbours: int = 0
    """How many configurations that differ from the best one by a single key were not measured; 0 where the whole space was."""
    constraints: dict[str, str] = Field(default_factory=dict)
    """The limits on what the server uses."""
    best: int | None = None
    """The number of the best configuration, as far as it is known."""
    ratio: float | None = None
    """Its throughput ÷ that of the present one, in the windows of the confirmation; of `latency` its p99, of `cost` its throughput for each
    CPU in use. None if that was not measured."""
    interval: tuple[float, float] | None = None
    """The interval of the ratio, at `confidence`."""
    confidence: float = 1 - CONFIRMATION_ERROR
    """The confidence of the interval."""
    pairs: int = 0
    """The number of pairs of windows in the confirmation, from which the ratio comes."""
    others_better_by: float | None = None
    """The share by which another measured configuration may be better than the best one, at most; None if that is unknown."""
    error_rate: float = ERROR
    """The chance that the best configuration was dropped, or that another one is better by more than stated, each at the concurrency that
    its scan chose."""
    indifference: float
    """The share by which another configuration may be better in a decided answer."""
    next_step: str = ""
    """What to do with the best configuration, a sentence; empty if it is the present one."""
    command: str = ""
    """The command that starts the server with the best configuration; empty if it is the present command."""
    rows: tuple[Row, ...]
    effects: tuple[Effect, ...] = ()
    rounds: int = 0
    notes: tuple[str, ...] = ()
    """What limits the answer; sentences."""
    started_at: str
    duration_s: float
    """Without interruptions."""
    perfkit_version: str

    def row(self, number: int) -> Row:
        """The row of a configuration."""
        return _row_of(self.rows, number)


def tune_outcome(
    state: TuneState,
    space: SearchSpace,
    candidates: Sequence[Candidate],
    progress: Progress,
    slo: Mapping[str, str],
    duration_s: float,
    *,
    notes: Sequence[str],
    constraints: Mapping[str, str] | None = None,
) -> TuneOutcome:
    """The outcome that follows from the windows measured so far."""
    inputs, limits = progress.inputs, constraints or {}
    rows = tuple(_row(state, candidates[number], has_slo=bool(slo)) for number, entry in state.entries.items() if not entry.is_pending)
    best, ratio, answer = state.choice(inputs.indifference)
    bound = None if best is None else state.bound(best)
    kind = _kind(rows, best, answer, len(space))
    command = candidates[best].command if best and kind != "kept" and candidates[best].command != candidates[0].command else ""
    undecided = () if kind != "undecided" else _undecided(state, rows, answer, inputs.indifference, len(space))
    measured = {row.number for row in rows}
    beside = 0 if best is None or len(measured) == len(space) else len(set(space.neighbours(best)) - measured)
    found = None if ratio is None else state.objective.figures(ratio.estimate, (ratio.low, ratio.high))
    return TuneOutcome(
        kind=kind,
        sentence=_sentence(
            kind, rows, best, ratio, bound, [*_slo_texts(slo), *(f"{what} ≤ {most}" for what, most in limits.items())], state, len(space)
        ),
        scenario=str(inputs.scenario.get("name", "")),
        target=inputs.target,
        objective=inputs.objective,
        rate_per_s=inputs.rate_per_s,
        slo=dict(slo),
        space=len(space),
        unmeasured_neighbours=beside,
        constraints=dict(limits),
        best=best,
        ratio=None if found is None else found[0],
        interval=None if found is None else found[1],
        pairs=0 if ratio is None else ratio.pairs,
        others_better_by=None if bound is None else bound - 1,
        indifference=inputs.indifference,
        next_step=_next_step(progress, changed_models(candidates, best), command=command) if best and kind != "kept" else "",
        command=command,
        rows=rows,
        effects=tuple(effects_of(state, space)),
        rounds=state.closed_round,
        notes=(*undecided, *_search_end(beside, len(measured), space.most), *notes),
        started_at=progress.started_at,
        duration_s=duration_s,
        perfkit_version=inputs.perfkit,
    )


def changes_of(rows: Sequence[Row], number: int) -> dict[str, tuple[str, str]]:
    """The keys in which a configuration differs from the present one, with both values; empty text for a key that one does not have."""
    present, values = rows[0].values, _row_of(rows, number).values
    return {key: (present.get(key, ""), values.get(key, "")) for key in {**present, **values} if present.get(key) != values.get(key)}


def config_diff(present: str, best: str) -> str:
    """The difference of two configurations, as a unified diff of their JSON with sorted keys."""
    before, after = (json.dumps(json.loads(text), indent=2, sort_keys=True).splitlines(keepends=True) for text in (present, best))
    return "".join(difflib.unified_diff(before, after, "present", "best"))


def changed_models(candidates: Sequence[Candidate], best: int) -> tuple[str, ...]:
    """The models whose configuration differs from the present one."""
    return tuple(model for model, text in candidates[best].configs.items() if text != candidates[0].configs[model])


def best_stem(model: str, tuned: str) -> str:
    """How the names of the files with a model's best configuration begin; those of an ensemble's members have their names."""
    return "best" if model == tuned else f"best.{model}"


def percent_text(share: float) -> str:
    """A share as a percentage, rounded up to a tenth: what a bound may say."""
    return f"{-(-1000 * share // 1) / 10:g} %"


def _kind(rows: Sequence[Row], best: int | None, answer: Answer | None, space: int) -> Kind:
    if answer is None or best is None or any(row.state in ("invalid", "waiting") for row in rows) or _has_no_other(rows, space):
        return "undecided"
    return answer if _chosen(rows, best, answer).slo in (None, "satisfied") else "undecided"


def _has_no_other(rows: Sequence[Row], space: int) -> bool:
    """Whether only the present configuration was measured, of a space that has more."""
    return len(rows) < space and all(row.state in ("waiting", "refused") for row in rows if row.number)


def _chosen(rows: Sequence[Row], best: int, answer: Answer) -> Row:
    """The configuration to use."""
    return _row_of(rows, best if answer == "better" else 0)


def _row_of(rows: Sequence[Row], number: int) -> Row:
    return next(row for row in rows if row.number == number)


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
        throughput_interval_per_s=throughput_interval_per_s(entry.windows),
        p50_ns=state.percentile_ns(candidate.number, 0.5) if has_windows else None,
        p99_ns=state.percentile_ns(candidate.number, 0.99) if has_windows else None,
        p99_interval_ns=p99_interval_ns(entry.windows),
        server_cpus=state.server_cpus(candidate.number),
        slo=state.judged(candidate.number).verdict if has_windows and has_slo else None,
        windows=len(entry.windows),
        dropped_after=entry.out_after,
        better=entry.better,
        others_better_by=None if bound is None or entry.state != "racing" else bound - 1,
    )


def _search_end(beside: int, measured: int, most: int) -> Iterator[str]:
    """Why the search by moves ended before the leader's neighbours were measured."""
    if beside:
        why = f"{most} are the most in one tune" if measured >= most else "the time was over"
        yield f"{beside:,} {'neighbour' if beside == 1 else 'neighbours'} of the best configuration {'was' if beside == 1 else 'were'} not measured: {why}."


def _sentence(
    kind: Kind,
    rows: Sequence[Row],
    best: int | None,
    ratio: Ratio | None,
    bound: float | None,
    all_limits: Sequence[str],
    state: TuneState,
    space: int,
) -> str:
    objective, limits = state.objective, " and ".join(all_limits)
    under = f" under {limits}" if limits else ""
    if best is None and any(row.state in ("invalid", "waiting") for row in rows):
        return "No configuration could be measured."
    if best is None:
        at_rate = "" if objective.rate_per_s is None else f" at {format_rate_per_s(objective.rate_per_s)}"
        return f"No configuration was found that answers requests{at_rate}{f' with {limits}' if limits else ''}."
    no_other = "".join(f"; {part}" for part in _others(rows, best, bound, space))
    figure = "" if ratio is None else objective.ratio_text(*objective.figures(ratio.estimate, (ratio.low, ratio.high)), under)
    if kind == "kept" and best != 0 and ratio is not None:
        return f"The present configuration is good enough: the best other one has {figure}{no_other}."
    if kind == "kept":
        return f"No better configuration was found than the present one{no_other}."
    changed = ", ".join(f"{key} {before or 'none'} → {after or 'none'}" for key, (before, after) in changes_of(rows, best).items())
    if best == 0:
        return f"The present configuration is the best so far{no_other}."
    if rows[0].state == "unmet":
        return f"{changed}: {objective.text(state.value(best))}{under}{objective.unmet}{no_other}."
    if ratio is None:
        return f"{changed} leads, but it was not compared with the present configuration{no_other}."
    return f"{changed}: {figure}{no_other}."


def _slo_texts(slo: Mapping[str, str]) -> list[str]:
    return [f"{name.replace('_', '.')} < {limit}" for name, limit in slo.items()]


def _others(rows: Sequence[Row], best: int, bound: float | None, space: int) -> Iterator[str]:
    """A sentence on the configurations other than the best one; it counts those that could not be compared."""
    others = [row for row in rows if row.number != best]
    left_out = [row.state for row in others if row.state in _NOT_COMPARED and (row.number or row.state != "unmet")]
    worse = sum(row.state == "worse" for row in others)
    if bound is not None and bound > 1:
        yield f"no {'other' if len(rows) == space else 'measured one'} is better than it by more than {percent_text(bound - 1)}"
    elif bound is not None and worse:
        everything = "all others are" if len(rows) == space else "all others that were measured are"
        yield f"{everything if worse == len(others) else f'{worse:,} is' if worse == 1 else f'{worse:,} are'} shown worse"
    if left_out:
        counts = ", ".join(f"{left_out.count(state):,} {state}" for state in dict.fromkeys(left_out))
        yield f"{len(left_out):,} could not be compared ({counts})"
    if len(rows) < space:
        measured = sum(row.state not in ("waiting", "refused") for row in rows)
        yield f"{measured:,} of {space:,} configurations of the space were measured"


def _next_step(progress: Progress, changed: Sequence[str], *, command: str) -> str:
    if not progress.models:
        return "Compare both in pairs (perfkit gate) before it serves. To use it, start the server with this command:"
    names = [(f"{best_stem(model, progress.model)}.config.pbtxt", f"{best_stem(model, progress.model)}.diff", model) for model in changed]
    files = ", and ".join(f"{text} in place of config.pbtxt in the folder of model '{model}'" for text, _, model in names)
    place = ", where {repository} is the repository" * ("{repository}" in command)
    start = (
        f"start the server with this command{place}:"
        if command
        else "load the model again."
        if progress.restores
        else "start the server again."
    )
    put = f"put {files}, after a look at {' and '.join(diff for _, diff, _ in names)}, and " if files else ""
    return f"Compare both in pairs (perfkit gate) before it serves. To use it, {put}{start}"


def _undecided(state: TuneState, rows: Sequence[Row], answer: Answer | None, indifference: float, space: int) -> tuple[str, ...]:
    """Sentences on the questions that are undecided; those that more time may decide come first."""
    found, lasting = [], []
    best, ratio, _ = state.choice(indifference)
    bound = None if best is None else state.bound(best)
    if waiting := [row for row in rows if row.state == "waiting"]:
        found.append(f"The time was over before {_named(waiting)} {'was' if len(waiting) == 1 else 'were'} measured.")
    if invalid := [row for row in rows if row.state == "invalid"]:
        lasting.append(f"{_named(invalid)} could not be measured: {invalid[0].reason or 'most of the windows are not valid.'}")
    alike = [row for row in rows if row.state == "racing" and row.number != best]
    if best is not None and not waiting and alike and (bound is None or bound > 1 + indifference):
        found.append(f"Not told apart from the best one: {_named(alike)}.")
    if rows[0].state == "failed":
        lasting.append(f"The present configuration could not be measured to the end: {rows[0].reason}")
    if not waiting and _has_no_other(rows, space):
        lasting.append(f"Of {space:,} configurations, none but the present one could be measured.")
    if best not in (None, 0) and ratio is None and rows[0].state in ("racing", "worse"):
        found.append(f"The time was over before the best configuration was compared with the present one in {FIRST_LOOK} pairs.")
    elif ratio is not None and ratio.low <= 1:
        most = "" if bound is None else f", and another one may be better than the present one by {percent_text(ratio.high * bound - 1)}"
        found.append(f"The interval of the ratio includes 1: the best configuration may be no better than the present one{most}.")
    if best is not None and (row := _row_of(rows, best) if answer is None else _chosen(rows, best, answer)).slo not in (None, "satisfied"):
        found.append(f"Whether {_named([row])} meets the SLO is not shown: {state.judged(row.number).reason}")
    if not found and not lasting:
        return ()
    more = "More time does not decide more: give another --out once the cause is gone."
    return (*found, *lasting, "More time decides more: --resume with a longer --time." if found else more)


def _named(rows: Sequence[Row]) -> str:
    titles = (", ".join(f"{key} {value}" for key, value in row.values.items()) or "the present one" for row in rows[:_MOST_NAMED])
    return "; ".join(titles) + (f"; and {len(rows) - _MOST_NAMED} more" if len(rows) > _MOST_NAMED else "")
