"""Gates on real server processes, also beside a busy neighbour: unchanged candidates, and candidates with planted changes.

    python -m benchmarks.live_gates [--time 6m] [--unchanged 2] [--five 2] [--twenty 2] [--p99 0] [--errors 0] [--neighbour 0] [--out FILE]

Each gate is a `perfkit gate`, with `--time` if it is given, that restarts the bundled server, with its model `synthetic`, for each run; together
they take about half an hour. The neighbour is a process that takes the given share of one core in bursts of 5 to 50 ms. Verdicts are stored in
a folder beside the report until all gates are complete: after an interruption, the same command continues. The exit code is 1 if an
unchanged candidate was judged regressed, or any gate invalid.
"""

import collections
import contextlib
import multiprocessing
import pathlib
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence

from scipy.stats import beta

from benchmarks.processes import run_gate, server_arm
from benchmarks.report import Report, program_options
from benchmarks.synthetic import INPUT
from perfkit.gate.folder import read_verdict
from perfkit.gate.sentences import format_change
from perfkit.gate.verdict import Verdict

BASELINE = "service=lognormal:20ms:cv=0.3,servers=8"
CANDIDATES = {
    "unchanged": BASELINE,
    "+5 % service time": "service=lognormal:21ms:cv=0.3,servers=8",
    "+20 % service time": "service=lognormal:24ms:cv=0.3,servers=8",
    "2 % of requests twice as long": f"{BASELINE},slow=2x/2%",
    "errors +0.5 %": f"{BASELINE},errors=0.5%:503",
}
"""The candidates' service models."""
IN_FLIGHT = 16
METRICS = ("throughput", "p50", "p95", "p99", "error_rate")
WITHOUT_JUDGEMENT = {"invalid", "incomparable", "error"}
SCENARIO = {
    "name": "live-gate",
    "target": {"model": "synthetic"},
    "workload": {"inputs": INPUT},
    "load": {"closed": {"concurrency": IN_FLIGHT}},
    "measure": {"warmup": "500ms"},
    "gate": {"profile": "standard"},
}


def plan_gates(counts: Sequence[int]) -> list[str]:
    """The candidates of all gates, in an order in which each kind is spread over the whole time."""
    places = sorted(((number + 0.5) / count, kind) for kind, count in zip(CANDIDATES, counts, strict=True) for number in range(count))
    return [kind for _, kind in places]


@contextlib.contextmanager
def neighbour(share: float) -> Iterator[None]:
    """A process that takes a share of one core in bursts, for the length of the block; none for 0."""
    process = multiprocessing.get_context("spawn").Process(target=_burn, args=(share,), daemon=True)
    try:
        if share:
            process.start()
        yield
    finally:
        if share:
            process.kill()
            process.join()


def _burn(share: float) -> None:
    rng = random.Random(1)
    while True:
        burst_s = rng.uniform(0.005, 0.05)
        end_s = time.thread_time() + burst_s
        while time.thread_time() < end_s:
            pass
        time.sleep(rng.expovariate(1) * burst_s * (1 - share) / share)


def upper_bound(alarms: int, gates: int, confidence: float = 0.95) -> float:
    """The upper confidence bound on the alarm rate (C. J. Clopper and E. S. Pearson, Biometrika 26, 1934)."""
    return 1.0 if alarms >= gates else float(beta.ppf(confidence, alarms + 1, gates - alarms))


def gate(folder: pathlib.Path, candidate: str, time_limit: str) -> tuple[Verdict, float]:
    """The verdict of one gate and its minutes, of an earlier call if there are any."""
    minutes, start_s = folder / "minutes", time.monotonic()
    if not minutes.exists():
        arms = [server_arm("--model", "synthetic", "--synthetic", law) for law in (BASELINE, CANDIDATES[candidate])]
        run_gate(folder, SCENARIO, *arms, *(("--time", time_limit) if time_limit else ()), "--format", "json")
        minutes.write_text(f"{(time.monotonic() - start_s) / 60:.2f}")
    return read_verdict(folder / "gate"), float(minutes.read_text())


def report(page: Report, finished: Sequence[tuple[str, Verdict, float]], time_limit: str, share: float) -> None:
    """The table of gates, and the bound on the rate of false alarms that they give."""
    kinds = {name: collections.Counter(verdict.kind for candidate, verdict, _ in finished if candidate == name) for name in CANDIDATES}
    judged = sum(count for kind, count in kinds["unchanged"].items() if kind not in WITHOUT_JUDGEMENT)
    alarms = kinds["unchanged"]["regressed"]
    bound = "No unchanged candidate was judged, so these gates say nothing about false alarms."
    if judged:
        bound = f"{alarms} false alarms in {judged} gates: their rate is at most **{upper_bound(alarms, judged):.0%}** at 95 % confidence."
    page.add(
        f"`python -m benchmarks.live_gates`: `perfkit gate{f' --time {time_limit}' if time_limit else ''}` with its standard profile on the bundled server's model",
        f"`synthetic` (`{BASELINE}`), restarted for every run, over HTTP with {IN_FLIGHT} requests in flight at saturation. Server and load",
        f"generator share two cores{f', with a process that takes {share:.0%} of a core in bursts of 5 to 50 ms' if share else ''}.",
        "",
        *(f"- {name}: {', '.join(f'{count} {kind}' for kind, count in counter.items()) or 'none'}." for name, counter in kinds.items()),
        f"- {bound}",
        "  So few gates cannot prove 1 %: that figure rests on exact tests and on [the simulation](gate-simulation.md).",
        "",
    )
    page.table(">gate", "candidate", "verdict", ">minutes", ">pairs (disturbed / discarded)", ">window", ">a run beside its windows", ">CPUs of others", *(f">{name}" for name in METRICS),
               ">minimum detectable effect")  # fmt: skip
    for number, (candidate, verdict, minutes) in enumerate(finished, 1):
        changes = {change.metric: format_change(change) for change in verdict.gated}
        effect, timing = verdict.minimum_detectable_effect, verdict.timing
        pairs = f"{verdict.pairs} ({verdict.disturbed_pairs} / {verdict.discarded_pairs})"
        window = "–" if timing is None or timing.window_s is None else f"{timing.window_s:g} s"
        beside = "–" if timing is None else f"{timing.run_overhead_s:.1f} s"
        others = None if verdict.generator is None else verdict.generator.others
        cpus = "–" if others is None else f"{others.cpus:.1f}"
        page.row(number, candidate, verdict.kind, f"{minutes:.1f}", pairs, window, beside, cpus, *(changes.get(name, "–") for name in METRICS),
                 "–" if effect is None else f"{effect:.1%}")  # fmt: skip
        page.is_met &= verdict.kind not in WITHOUT_JUDGEMENT and (candidate, verdict.kind) != ("unchanged", "regressed")
    page.add(
        "",
        "Changes are the candidate's, with their intervals; errors in percentage points. *Minimum detectable effect*: the slowdown of",
        "any one metric that 9 of 10 gates with the same noise would detect. *CPUs of others*: what processes besides server and perfkit used.",
    )
    unjudged = [f"- gate {number}: {one[1].reasons[0]}" for number, one in enumerate(finished, 1) if one[1].kind in WITHOUT_JUDGEMENT]
    if unjudged:
        page.add("", "Not judged:", "", *unjudged)


def main() -> int:
    """Runs the missing gates, and writes the report."""
    options = program_options(
        __doc__, out="live-gates", unchanged=(2, "gates"), five=(2, "gates"), twenty=(2, "gates"), p99=(0, "gates"), errors=(0, "gates"),
        time=("", "the time of each gate"), neighbour=(0.0, "per cent of one core; 0: none"),
    )  # fmt: skip
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder, share = options.out.with_suffix(".partial").resolve(), options.neighbour / 100
    candidates = plan_gates((options.unchanged, options.five, options.twenty, options.p99, options.errors))
    finished = list[tuple[str, Verdict, float]]()
    with neighbour(share):
        for number, candidate in enumerate(candidates, 1):
            finished.append((candidate, *gate(folder / f"gate-{number:02}", candidate, options.time)))
            print(f"gate {number} of {len(candidates)}, {candidate}: {finished[-1][1].kind}", file=sys.stderr, flush=True)
    page = Report(options.out, "Gates on real server processes")
    report(page, finished, options.time, share)
    shutil.rmtree(folder)
    return page.write()


if __name__ == "__main__":
    sys.exit(main())
