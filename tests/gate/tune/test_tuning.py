"""The lifecycle of a tune whose windows are made up, by a clock that each visit moves on."""

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest

from perfkit.gate.tune import tuning
from perfkit.gate.tune.folder import Progress, TuneFolder, TuneInputs, Window
from perfkit.gate.tune.moves import SearchSpace
from perfkit.gate.tune.space import Candidate

LIMIT_S = 600
VISIT_S = 3.0


class Interrupted(Exception):  # noqa: N818
    pass


class MadeUpTune(tuning._Tune):
    """Configurations of given throughputs; `odd` says what else is known of the window of a visit."""

    def __init__(self, folder, rates, odd=lambda *_: {}, *, resumes=False):
        candidates = [Candidate(number, {"count": str(number + 1)}) for number in range(len(rates))]
        inputs = TuneInputs(
            scenario={"name": "m"},
            target="t",
            candidates=tuple(dict(one.values) for one in candidates),
            ladder=(1,),
            indifference=0.03,
            perfkit="0",
        )
        first = SearchSpace([one.values for one in candidates]).first()
        progress = Progress(inputs=inputs, seed=1, started_at="2026-01-02T03:04:05.678+00:00", first=first)
        self.rates, self.odd, self.now_s = rates, odd, 0.0
        self.folder = TuneFolder(folder / "tune", progress, {}, resumes=resumes)
        measure, workload = SimpleNamespace(warmup_ns="auto"), SimpleNamespace(variants=1)
        loaded: Any = SimpleNamespace(scenario=SimpleNamespace(slo=None, measure=measure, workload=workload, tune=None, name="m"))
        clock, observer = SimpleNamespace(now_ns=lambda: round(self.now_s * 1e9)), SimpleNamespace(message=lambda _: None)
        context: Any = SimpleNamespace(clock=clock, observer=observer)
        server: Any = None
        super().__init__(tuning.TuneRequest(loaded, candidates, server, LIMIT_S * 10**9), self.folder, server, context)

    async def _visit(self, candidate, phase, number, window_s):
        self.now_s += VISIT_S
        figures = {"concurrency": 1, "length_s": window_s, "is_valid": True, "scheduled": 100}
        if self._state.scan_step(candidate, 0) is not None:
            scanned = {**figures, "throughput_per_s": self.rates[candidate]}
            self._add(Window.model_validate({"candidate": candidate, "phase": "scan", "round": number, **scanned}))
        place = {"candidate": candidate, "phase": phase, "round": number}
        odd = self.odd(candidate, phase, number)
        noise = 1 + 0.004 * random.Random(f"{candidate} {phase} {number}").gauss(0, 1)
        known = odd if "has_failed" in odd else {**figures, "throughput_per_s": self.rates[candidate] * noise, **odd}
        self._add(Window.model_validate({**place, **known}))


@pytest.mark.parametrize(
    ("odd", "state"), [({"is_valid": False, "reason": "the generator"}, "invalid"), ({"has_failed": True, "reason": "lost"}, "failed")]
)
def test_a_tune_ends_where_the_present_configuration_cannot_be_measured(tmp_path, odd, state):
    tune = MadeUpTune(tmp_path, [100, 160], lambda candidate, phase, _: odd if candidate == 0 and phase == "race" else {})
    asyncio.run(tune.run())
    assert tune.now_s < LIMIT_S / 4
    outcome = tune.outcome()
    assert (outcome.kind, outcome.best, outcome.rows[0].state) == ("undecided", 1, state)
    assert outcome.notes[-1] == "More time does not decide more: give another --out once the cause is gone."


def test_a_tune_that_is_continued_in_the_middle_of_a_round_measures_the_same_ones(tmp_path):
    rates = [100, 100.5, 100.2, 101, 100.7, 100.1, 100.9, 100.3, 100.6, 100.4]

    def measured(folder, stop=None):
        visits = []

        def odd(candidate, phase, number):
            if (phase, number) == ("race", 2):
                visits.append(candidate)
                if len(visits) == stop:
                    raise Interrupted
            return {}

        folder.mkdir()
        tune = MadeUpTune(folder, rates, odd)
        try:
            asyncio.run(tune.run())
        except Interrupted:
            tune = MadeUpTune(folder, rates, resumes=True)
            asyncio.run(tune.run())
        return {one.candidate for one in tune.folder.windows if one.phase == "race" and one.round == 2}

    whole = measured(tmp_path / "whole")
    assert 5 <= len(whole) <= 6, "the better half, and the present one"
    assert [measured(tmp_path / str(stop), stop) for stop in range(1, 6)] == 5 * [whole]
