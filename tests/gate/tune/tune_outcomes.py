"""Outcomes of tunes, made from windows whose throughput is given."""

from collections.abc import Sequence

from perfkit.gate.tune.folder import Progress, TuneInputs, Window
from perfkit.gate.tune.moves import SearchSpace
from perfkit.gate.tune.objective import objective_of
from perfkit.gate.tune.outcome import TuneOutcome, tune_outcome
from perfkit.gate.tune.progress import TuneState
from perfkit.gate.tune.space import Candidate
from perfkit.scenario.measure import ObjectiveName
from perfkit.stats.buckets import BucketCounts
from perfkit.stats.slo import SloLimits

LADDER = (1, 4)
WOBBLE = (1.0, 1.002, 0.997, 1.001, 0.999)


def make_outcome(
    rates: Sequence[float],
    *,
    rounds: int = 5,
    pairs: int = 5,
    noise: float = 1.0,
    refused: Sequence[int] = (),
    doubtful: Sequence[int] = (),
    restores: bool = True,
    unmeasured: int = 0,
    objective: ObjectiveName = "goodput",
) -> TuneOutcome:
    """The outcome of configurations `instance_group.count` 1, 2, … with these throughputs, under p99 < 50 ms; a rate of 0 misses that.

    With `latency` they are ratios of 1,000,000 ns to the p99 at 100/s, and with `cost` the throughput of two CPUs. So many further ones are `unmeasured`.
    0.95 % of the answers of a `doubtful` one take longer, which its windows cannot tell from 1 %.
    """
    rate_per_s = 100.0 if objective == "latency" else None
    ladder, top = ((0,), 0) if rate_per_s else (LADDER, 4)
    state = TuneState(range(len(rates)), ladder, SloLimits({0.99: 50_000_000}), objective=objective_of(objective, rate_per_s))

    def add(candidate: int, phase: str, number: int, concurrency: int, rate: float) -> None:
        slow = 0 if rate and candidate not in doubtful else 19 if rate else 2000
        times = BucketCounts.of([10_000_000] * (2000 - slow) + [90_000_000] * slow)
        pairs = tuple(zip(times.indices.tolist(), times.counts.tolist(), strict=True))
        known = {"candidate": candidate, "phase": phase, "round": number, "concurrency": concurrency, "times": (pairs,)}
        state.add(Window.model_validate({
            **known, "length_s": 1.0, "is_valid": True, "throughput_per_s": 2000 if rate_per_s else rate or 1.0, "scheduled": 2000, "answers": 2000,
            "p99_ns": round(1e6 / rate) if rate else None, "server_cpus": 2.0 if objective == "cost" else None,
        }))  # fmt: skip

    def noisy(candidate: int, number: int) -> float:
        return rates[candidate] * (1 + noise * (WOBBLE[(number * (candidate + 2) + candidate) % 5] - 1))

    for candidate, rate in enumerate(rates):
        if candidate in refused:
            state.add(Window(candidate=candidate, phase="race", round=1, refusal="out of memory"))
        else:
            for concurrency in ladder if rate else 2 * ladder[:1]:
                add(candidate, "scan", 1, concurrency, rate if concurrency == top else rate / 4)
    for number in range(1, rounds + 1):
        for candidate in state.left():
            add(candidate, "race", number, top, noisy(candidate, number))
        state.close_round(number)
    leader = state.leader
    for number in range(1, pairs + 1 if leader else 1):
        for one in (leader, 0):
            if one is not None and state.entries[one].step is not None:
                add(one, "confirmation", number, top, noisy(one, number))
    candidates = [
        Candidate(number, {"instance_group.count": str(number + 1)}, configs={"m": str(number)})
        if restores
        else Candidate(number, {"instance_group.count": str(number + 1)}, f"serve {number + 1}")
        for number in range(len(rates) + unmeasured)
    ]
    inputs = TuneInputs(
        scenario={"name": "m"}, target="http://127.0.0.1:8000", candidates=tuple(dict(one.values) for one in candidates), ladder=ladder,
        objective=objective, rate_per_s=rate_per_s, indifference=0.03, perfkit="0",
    )  # fmt: skip
    progress = Progress(
        inputs=inputs,
        seed=1,
        started_at="2026-01-02T03:04:05.678+00:00",
        restores=restores,
        model="m",
        first=tuple(range(len(rates))),
        models=("m",) if restores else (),
    )
    space = SearchSpace([one.values for one in candidates])
    return tune_outcome(state, space, candidates, progress, {"p99": "50ms"}, 321.0, notes=())
