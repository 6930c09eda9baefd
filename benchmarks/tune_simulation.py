"""Races of `perfkit tune` on simulated windows: how often the best configuration is found, and whether the stated bound holds.

    python -m benchmarks.tune_simulation [--races 400] [--seed 11] [--out reports/tune-simulation.md]

Each race ends when no other configuration is better than the leader by more than 3 %, or after 100 rounds. The spaces that are searched by moves have half
of the races. It takes about ten minutes. The exit code is 1 if a requirement is missed: a configuration within 3 % of the best is found in 95 % of the races,
the best is dropped and a bound is too low in at most 5 % (2.5 % are stated, and 4 % where the best one is the noisiest), the interval of the confirmation holds the ratio in 96 % (97.5 % are stated), and of
64 candidates, 60 of them clearly worse, at most a quarter is measured of what all for as long as the winner would be.
"""

import statistics
import sys
from collections.abc import Mapping, Sequence

from benchmarks.report import Report, program_options
from benchmarks.simulated_spaces import SPACES, two_peaks
from benchmarks.simulated_tunes import MOST_PAIRS, MOST_ROUNDS, Noise, SimulatedTune, simulate

INDIFFERENCE = 0.03
FACTORIAL = [0.1 * a + 0.05 * b - 0.04 * a * b for a in range(4) for b in range(4)]
CLEARLY_WORSE = [0.0, -0.01, -0.02, -0.03, *[-0.25] * 60]
CASES: Mapping[str, tuple[Sequence[float], Noise]] = {
    "4 × 4 with an interaction, 2 % noise": (FACTORIAL, Noise([0.02] * 16)),
    "the same, drift of 10 % a round": (FACTORIAL, Noise([0.02] * 16, drift=0.1)),
    "the same, noise of 1 to 4 %": (FACTORIAL, Noise([0.01 + 0.002 * index for index in range(16)], drift=0.05)),
    "the same, long tails (Student's t, 4)": (FACTORIAL, Noise([0.02] * 16, drift=0.05, tails=4)),
    "the same, 5 % of windows disturbed": (FACTORIAL, Noise([0.02] * 16, drift=0.05, contaminated=0.05)),
    "six that are alike": ([0.0] * 6, Noise([0.02] * 6)),
    "20 from 0 to -40 %": ([-0.02 * index for index in range(20)], Noise([0.02] * 20, drift=0.05)),
    "64, of which 60 are clearly worse": (CLEARLY_WORSE, Noise([0.02] * 64, drift=0.05)),
}
NOISIEST: Mapping[str, tuple[Sequence[float], Noise]] = {
    f"the best of {count}, by 1 %, is the noisiest: 6 %, the others 1 %": (
        [0.01, *[0.0] * (count - 1)],
        Noise([0.06, *[0.01] * (count - 1)]),
    )
    for count in (4, 8, 16)
}
"""Races of a few rounds, in which nearly all wrong drops happen: they would take long to end."""
_FEW_ROUNDS = 8


def main() -> int:
    """Simulates all cases."""
    options = program_options(__doc__, out="tune-simulation", races=(400, "races of each case"), seed=11)
    report = Report(options.out, "Races of configurations, simulated")
    report.add(
        f"{options.races:,} races of each case, seed {options.seed}; they end when no other configuration is better than the leader by more than "
        f"{INDIFFERENCE:.0%}, or after {MOST_ROUNDS} rounds, {_FEW_ROUNDS} where the best is the noisiest. *Found*: the chosen one, which is the leader or the present one if that is kept, is within 3 % of the best. *Best dropped*: it was shown worse. *Bound too low*: another one is better by more "
        f"than the race says. *Interval holds*: that of the confirmation, if there is one, has the true ratio in it (97.5 % are stated), after as many *pairs* as the rule of the confirmation takes, {MOST_PAIRS} at most. *Of all*: the windows that "
        "were measured, of those that all configurations for as many rounds would have taken.",
        "",
    )
    report.table("case", ">found", ">best dropped", ">bound too low", ">interval holds", ">pairs", ">decided", ">rounds", ">of all", "met")
    for name, (truth, noise) in {**CASES, **NOISIEST}.items():
        most = _FEW_ROUNDS if name in NOISIEST else MOST_ROUNDS
        races = [simulate(truth, noise, options.seed * 100_000 + number, INDIFFERENCE, most_rounds=most) for number in range(options.races)]
        found = statistics.fmean(race.loss <= INDIFFERENCE for race in races)
        too_low = statistics.fmean(race.loss > race.bound + 1e-9 for race in races)
        of_all = statistics.fmean(race.windows / (len(truth) * race.rounds) for race in races)
        covered = share_covered(races)
        dropped = statistics.fmean(race.is_best_dropped for race in races)
        is_met = found >= 0.95 and max(dropped, too_low) <= 0.05 and covered >= 0.96 and (truth is not CLEARLY_WORSE or of_all <= 0.25)
        report.judged_row(
            is_met,
            name,
            f"{found:.1%}",
            f"{dropped:.1%}",
            f"{too_low:.1%}",
            f"{covered:.1%}",
            f"{statistics.fmean(race.pairs for race in races):.1f}",
            f"{statistics.fmean(race.answer is not None for race in races):.0%}",
            f"{statistics.fmean(race.rounds for race in races):.1f}",
            f"{of_all:.0%}",
        )
    add_spaces(report, options.races // 2, options.seed)
    return report.write()


def share_covered(races: Sequence[SimulatedTune]) -> float:
    """The share of tunes whose interval holds the true ratio; those without an interval count as holding it."""
    return statistics.fmean(race.covers is not False for race in races)


def add_spaces(report: Report, races: int, seed: int) -> None:
    """Spaces that are searched by moves."""
    report.add(
        "",
        "## Spaces that are too large to be measured as a whole",
        "",
        f"{races:,} races of each law, whose parameters and present configuration are drawn anew for each; 2 % noise, drift of 5 % a round. *Found*: within 3 % of the best of the "
        "whole space. *Median, worst loss*: by how much that is better than the chosen one. *Bound too low*: another one of those measured is better by more than the race says. "
        "The search goes on from the best one so far by one key at a time, with a few others by forecast, so that a valley between two peaks may trap it: the last law shows how often, and nothing is required of it.",
        "",
    )
    report.table(
        "law", ">space", ">found", ">median, worst loss", ">bound too low", ">interval holds", ">measured", ">rounds", ">windows", "met"
    )
    for name, make in SPACES.items():
        spaces = [make((seed + 1) * 100_000 + number) for number in range(races)]
        found = [
            simulate(space.truth, Noise(0.02, drift=0.05), seed * 100_000 + number, INDIFFERENCE, space.values)
            for number, space in enumerate(spaces)
        ]
        near = statistics.fmean(race.loss <= INDIFFERENCE for race in found)
        too_low = statistics.fmean(race.measured_loss > race.bound + 1e-9 for race in found)
        covered = share_covered(found)
        losses = sorted(race.loss for race in found)
        report.judged_row(
            (near >= 0.95 or make is two_peaks) and too_low <= 0.05 and covered >= 0.96,
            name,
            f"{len(spaces[0].values)}",
            f"{near:.1%}",
            f"{statistics.median(losses):.1%}, {losses[-1]:.1%}",
            f"{too_low:.1%}",
            f"{covered:.1%}",
            f"{statistics.fmean(race.measured for race in found):.1f}",
            f"{statistics.fmean(race.rounds for race in found):.1f}",
            f"{statistics.fmean(race.windows for race in found):.0f}",
        )


if __name__ == "__main__":
    sys.exit(main())
