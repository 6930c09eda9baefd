"""NVIDIA's Model Analyzer and perfkit on the same Triton, models and configurations: both rankings, and what each does not say.

    python -m benchmarks.model_analyzer [--peers FOLDER] [--analyzer PROGRAM] [--rounds 3] [--out reports/model-analyzer.md]

Model Analyzer (PyPI: triton-model-analyzer) runs without a GPU. It starts Triton itself and measures the model of
`benchmarks/peers/triton_ranked_models`, without dynamic batching (`paced`) and with it (`paced_dynamic`), each with one
instance and with two, in closed loops of 2, 4 and 8. It also measures each model as it is in the repository, which has one instance:
two of the six configurations are copies of others, so their true ranks are equal. The objective is throughput at p99 < 50 ms.
Then `perfkit run` sweeps over the configurations that Model Analyzer wrote.

It takes about 20 minutes. The exit code is 1 if perfkit ranks a copy apart from its original, or if a program fails.
"""

import json
import math
import pathlib
import shutil
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.peers.install import peers_folder
from benchmarks.peers.model_analyzer import CONCURRENCIES, COPIES, LIMIT_MS, Analysis, Setting, analyze, analyzer_version, write_variants
from benchmarks.peers.server_process import PeerError
from benchmarks.peers.triton import running_triton
from benchmarks.processes import ROOT, run_perfkit
from benchmarks.report import describe_machine, option_parser, table_head, table_row, write_report, yes_no
from perfkit.stats.distributions import student_t_quantile


class Measured(NamedTuple):
    """What perfkit measured of a setting: the throughput of each repetition, and the p99 with its 95 % interval (None: open above)."""

    throughputs_per_s: list[float]
    p99_ms: float
    p99_low_ms: float
    p99_high_ms: float | None
    requests: int
    is_valid: bool

    @property
    def throughput_per_s(self) -> float:
        """The mean of the repetitions."""
        return statistics.fmean(self.throughputs_per_s)

    @property
    def half_width_per_s(self) -> float:
        """Half the width of Student's 95 % interval over the repetitions."""
        number = len(self.throughputs_per_s)
        return student_t_quantile(0.975, number - 1) * statistics.stdev(self.throughputs_per_s) / math.sqrt(number)

    @property
    def judgement(self) -> str:
        """Whether p99 is below the limit, as far as its interval tells."""
        if self.p99_high_ms is not None and self.p99_high_ms < LIMIT_MS:
            return "holds"
        return "violated" if self.p99_low_ms > LIMIT_MS else "cannot be told"

    def is_better(self, other: "Measured") -> bool:
        """Whether the throughput is higher with 95 % confidence (Welch's test)."""
        squares = [statistics.variance(one.throughputs_per_s) / len(one.throughputs_per_s) for one in (self, other)]
        degrees = sum(squares) ** 2 / sum(square**2 / (len(self.throughputs_per_s) - 1) for square in squares)
        difference = self.throughput_per_s - other.throughput_per_s
        return difference > student_t_quantile(0.975, math.floor(degrees)) * math.sqrt(sum(squares))


def scenario(url: str, names: Sequence[str], *, seconds: float, repetitions: int) -> dict[str, Any]:
    """The sweep over the configurations, with the loads of Model Analyzer."""
    return {
        "name": "model-analyzer",
        "target": {"url": url, "model": names[0]},
        "load": {"closed": {"concurrency": list(CONCURRENCIES)}},
        "measure": {"duration": f"{seconds:g}s", "repetitions": repetitions},
        "sweep": {"target.model": list(names)},
    }


def read_sweep(folder: pathlib.Path) -> dict[Setting, Measured]:
    """The figures of a sweep's load points."""
    measured = {}
    for case in json.loads((folder / "sweep.json").read_text(encoding="utf-8"))["cases"]:
        result = json.loads((folder / case["folder"] / "result.json").read_text(encoding="utf-8"))
        for point in result["summary"]:
            concurrency = point["load"]["concurrency"]
            low_ns, high_ns = point["intervals"]["p99"]
            measured[Setting(case["values"]["target.model"], concurrency)] = Measured(
                [one["throughput_per_s"] for one in result["points"] if one["load"]["concurrency"] == concurrency],
                point["service_time_ns"]["p99"] / 1e6,
                low_ns / 1e6,
                None if high_ns is None else high_ns / 1e6,
                point["requests"]["ok"],
                point["valid"],
            )
    return measured


class Ranked(NamedTuple):
    """A configuration in perfkit's ranking: its rank, None if no load holds the constraint, and the load with the highest throughput."""

    rank: int | None
    setting: Setting


def rank(measured: Mapping[Setting, Measured]) -> dict[str, Ranked]:
    """Ranks the configurations by throughput at p99 below the limit, the best first; those that nothing tells apart share a rank."""
    best: dict[str, Setting] = {}
    for setting, one in measured.items():
        is_first = setting.configuration not in best
        if one.judgement == "holds" and (is_first or one.throughput_per_s > measured[best[setting.configuration]].throughput_per_s):
            best[setting.configuration] = setting
    ranks = {
        name: 1 + sum(measured[other].is_better(measured[setting]) for other in best.values() if other is not setting)
        for name, setting in best.items()
    }
    order = sorted(best, key=lambda name: (ranks[name], -measured[best[name]].throughput_per_s))
    others = {setting.configuration: setting for setting in measured if setting.configuration not in best}
    return {name: Ranked(ranks[name], best[name]) for name in order} | {name: Ranked(None, others[name]) for name in others}


def shown_ranks(name: str, rounds: Sequence[Analysis]) -> str:
    """A configuration's ranks in the runs of Model Analyzer, such as `2, 3, 2`."""
    return ", ".join(str(one.ranking.index(name) + 1) if name in one.ranking else "–" for one in rounds)


def ranking_rows(ranked: Mapping[str, Ranked], measured: Mapping[Setting, Measured], rounds: Sequence[Analysis]) -> list[str]:
    """The rankings side by side."""
    rows = table_head("configuration", "copy of", "Model Analyzer's ranks", "throughput that it ranks by, per run", ">perfkit's rank",
                      ">concurrency", ">throughput, 95 %", ">p99, 95 %")  # fmt: skip
    for name, one in ranked.items():
        figures = measured[one.setting]
        bests = [
            max(
                (row.throughput_per_s for setting, row in analysis.figures.items() if setting.configuration == name and row.is_within),
                default=None,
            )
            for analysis in rounds
        ]
        shown = ", ".join("–" if best is None else f"{best:.0f}" for best in bests)
        rows.append(
            table_row(
                name, COPIES.get(name, "–"), shown_ranks(name, rounds), shown, one.rank or "–", one.setting.concurrency,
                f"{figures.throughput_per_s:.1f} ± {figures.half_width_per_s:.1f}/s", p99_interval(figures),
            )
        )  # fmt: skip
    return rows


def p99_interval(one: Measured) -> str:
    """A p99 with its interval."""
    high = "open" if one.p99_high_ms is None else f"{one.p99_high_ms:.1f}"
    return f"{one.p99_ms:.1f} ms ({one.p99_low_ms:.1f} to {high})"


def setting_rows(measured: Mapping[Setting, Measured], rounds: Sequence[Analysis]) -> list[str]:
    """Every measurement of both: throughput, p99, and whether the constraint holds."""
    rows = table_head("configuration", ">concurrency", "Model Analyzer: throughput", "p99, ms", "within", ">requests",
                      ">perfkit: throughput, 95 %", ">p99, 95 %", "constraint", ">requests", "valid")  # fmt: skip
    for setting, one in sorted(measured.items()):
        theirs = [analysis.figures[setting] for analysis in rounds if setting in analysis.figures]
        rows.append(
            table_row(
                *setting,
                ", ".join(f"{row.throughput_per_s:.1f}" for row in theirs),
                ", ".join(f"{row.p99_ms:.1f}" for row in theirs),
                ", ".join(yes_no(row.is_within) for row in theirs),
                ", ".join(str(row.requests) for row in theirs),
                f"{one.throughput_per_s:.1f} ± {one.half_width_per_s:.1f}/s",
                p99_interval(one),
                one.judgement,
                one.requests,
                yes_no(one.is_valid),
            )
        )
    return rows


def findings(ranked: Mapping[str, Ranked], rounds: Sequence[Analysis]) -> list[str]:
    """What the rankings say of the copies, and whether Model Analyzer's runs agree with each other."""
    lines = []
    for copy, original in COPIES.items():
        gaps = [abs(best_of(one, copy) / best_of(one, original) - 1) for one in rounds if best_of(one, copy) and best_of(one, original)]
        apart = sum(one.ranking.index(copy) != one.ranking.index(original) for one in rounds if {copy, original} <= {*one.ranking})
        shared = ranked[copy].rank == ranked[original].rank
        gap = f", by up to {max(gaps):.1%} in throughput" if gaps else ""
        lines.append(
            f"- {copy} and {original} are the same configuration. Model Analyzer ranks them apart in {apart} of {len(rounds)} runs{gap}; "
            f"perfkit gives them {'the same rank' if shared else 'different ranks'}."
        )
    orders = {tuple(one.ranking) for one in rounds}
    lines.append(f"- {len(rounds)} runs of Model Analyzer gave {len(orders)} different rankings.")
    settings = {setting for one in rounds for setting in one.figures}
    mixed = [
        one for one in sorted(settings) if len({analysis.figures[one].is_within for analysis in rounds if one in analysis.figures}) > 1
    ]
    shown = ", ".join(f"{one.configuration} at {one.concurrency}" for one in mixed) or "none"
    lines.append(f"- Measurements that satisfy the constraint in some of its runs and violate it in others: {shown}.")
    return lines


def best_of(analysis: Analysis, name: str) -> float:
    """The highest throughput of a configuration within the constraint; 0 if there is none."""
    return max(
        (row.throughput_per_s for setting, row in analysis.figures.items() if setting.configuration == name and row.is_within), default=0.0
    )


NOT_SAID = (
    "## What each does not say",
    "",
    "Model Analyzer does not say",
    "",
    "- how uncertain a figure is: it ranks by the throughput of one measurement at each load, without an interval, so that copies of one",
    "  configuration get different ranks;",
    "- how many requests a p99 rests on (the counts above are from perf_analyzer's own output), or whether a constraint holds only by chance;",
    "- whether the load generator, or another program on the machine, disturbed the measurement;",
    "- which of several models' configurations is the default that it compares with: its summary says that the best provides no gain.",
    "",
    "perfkit does not say",
    "",
    "- which configurations to try: Model Analyzer writes them (instances, batch sizes, queue delays), searches among them and restarts",
    "  Triton for each; perfkit measures those that it is given;",
    "- how much of the CPU's memory the server uses, which Model Analyzer reads from the server's process;",
    "- which combination of configurations is best for several models on one server: it measures a mix, but does not search.",
    "",
    "A closed loop slows down with the server. Both can send requests at a rate instead, and neither did so here.",
)


def main() -> int:
    """Runs both, and prints the tables."""
    parser = option_parser(__doc__, out=ROOT / "reports" / "model-analyzer.md")
    parser.add_argument("--peers", type=pathlib.Path, help="folder of the peers")
    parser.add_argument("--analyzer", type=pathlib.Path, help="the program model-analyzer (default: in the peers' folder)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of Model Analyzer (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=4, help="window of perfkit's repetitions (default %(default)s)")
    parser.add_argument("--repetitions", type=int, default=5, help="perfkit's repetitions (default %(default)s)")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / "model-analyzer", help="folder of the results")
    options = parser.parse_args()
    peers, machine = peers_folder(options.peers), describe_machine()
    program = options.analyzer or peers / "model-analyzer" / "bin" / "model-analyzer"
    rounds = []
    try:
        for number in range(options.rounds):
            rounds.append(analyze(program.absolute(), options.work.absolute() / f"round-{number}", peers))
            print(f"Model Analyzer, {rounds[-1].took_s:.0f} s: {', '.join(rounds[-1].ranking)}", flush=True)
        repository, out = options.work / "repository", options.work / "sweep"
        for folder in (repository, out):
            shutil.rmtree(folder, ignore_errors=True)
        names = write_variants(options.work / "round-0" / "variants", repository)
        with running_triton(peers, models=repository) as triton:
            start_s = time.monotonic()
            sweep = scenario(triton.url("grpc"), names, seconds=options.seconds, repetitions=options.repetitions)
            run = run_perfkit(sweep, out=out.absolute())
            took_s, version = time.monotonic() - start_s, triton.version
        measured = read_sweep(out)
    except (PeerError, OSError, KeyError) as error:
        print(f"model_analyzer: {error!r}", file=sys.stderr)
        return 1
    ranked = rank(measured)
    is_tied = all(ranked[copy].rank == ranked[original].rank for copy, original in COPIES.items())
    durations = ", ".join(f"{one.took_s:.0f} s" for one in rounds)
    lines = [
        f"# Model Analyzer and perfkit on the same Triton {version}",
        "",
        f"{machine} Model Analyzer {analyzer_version(program)} ran as it is, without a GPU ({durations}); `perfkit run` took {took_s:.0f} s and ended with",
        f"exit code {run.exit_code}. The model waits for 8 ms and 1 ms for each request of a batch on average (coefficient of variation 0.3).",
        f"The objective is throughput at p99 < {LIMIT_MS} ms, in closed loops of {', '.join(map(str, CONCURRENCIES))}.",
        "",
        "## Rankings",
        "",
        *ranking_rows(ranked, measured, rounds),
        "",
        *findings(ranked, rounds),
        f"- Model Analyzer's summary of its first run: “{rounds[0].sentence}”",
        "",
        "## Measurements",
        "",
        *setting_rows(measured, rounds),
        "",
        *NOT_SAID,
    ]
    print("\n".join(lines))
    write_report(options.out, lines)
    return 0 if is_tied else 1


if __name__ == "__main__":
    sys.exit(main())
