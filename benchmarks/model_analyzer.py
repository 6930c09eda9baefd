"""NVIDIA's Model Analyzer and perfkit compared: their rankings of the same configurations on Triton, and what each does not say.

    python -m benchmarks.model_analyzer [--peers FOLDER] [--analyzer PROGRAM] [--rounds 3] [--out reports/model-analyzer.md]

Model Analyzer (PyPI: triton-model-analyzer) runs without a GPU, and starts Triton itself. `benchmarks/peers/model_analyzer.py` describes the six
configurations that it measures, in closed loops of 2, 4 and 8. Two of them are copies of others, so their true ranks are equal. The objective is
throughput at p99 < 50 ms. Then `perfkit run` sweeps over the configurations that Model Analyzer wrote.

Intervals are 95 %. It takes about 20 minutes; on a busy machine, put `chrt -f 1` before the command. The exit code is 1 if perfkit gives a
copy another rank than its original, which happens by chance in at most one of twenty runs, or if a program fails.
"""

import os
import pathlib
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.peers.install import peers_folder
from benchmarks.peers.model_analyzer import CONCURRENCIES, COPIES, LIMIT_MS, Analysis, Setting, analyze, analyzer_version, write_variants
from benchmarks.peers.server_process import PeerError
from benchmarks.peers.triton import running_triton
from benchmarks.processes import ROOT, run_perfkit
from benchmarks.report import describe_machine, option_parser, publish, table_head, table_row, yes_no
from perfkit.comparison.sweep_ranking import RankedCase, SweepRanking, rank_sweep
from perfkit.errors import ResultError
from perfkit.report.sweep_ranking import ranking_sentences
from perfkit.result.file import read_result
from perfkit.result.model import Point, Result
from perfkit.result.sweep import read_sweep
from perfkit.stats.ratio_interval import Estimate


def scenario(url: str, names: Sequence[str], *, seconds: float, repetitions: int) -> dict[str, Any]:
    """The sweep over the configurations, with the loads and the constraint of Model Analyzer."""
    return {
        "name": "model-analyzer",
        "target": {"url": url, "model": names[0]},
        "load": {"closed": {"concurrency": list(CONCURRENCIES)}},
        "measure": {"duration": f"{seconds:g}s", "repetitions": repetitions},
        "slo": {"p99": f"{LIMIT_MS}ms"},
        "sweep": {"target.model": list(names)},
        "rank": {"by": "throughput"},
    }


def read_results(folder: pathlib.Path) -> dict[str, Result]:
    """The results of a sweep by configuration; raises ResultError."""
    return {case.values["target.model"]: read_result(folder / case.folder)[0] for case in read_sweep(folder).cases}


def name_of(one: RankedCase) -> str:
    """The configuration of a ranked case."""
    return str(one.values["target.model"])


def interval(figure: Estimate | None, unit: float, digits: int = 1) -> str:
    """A figure with its interval, divided by `unit`."""
    if figure is None:
        return "–"
    low, high = ("open" if end is None else f"{end / unit:.{digits}f}" for end in (figure.low, figure.high))
    return f"{figure.value / unit:.{digits}f} ({low} to {high})"


def best_of(analysis: Analysis, name: str) -> float:
    """The highest throughput of a configuration within the constraint; 0 if there is none."""
    return max((row.throughput_per_s for setting, row in analysis.figures.items() if setting.configuration == name and row.is_within),
               default=0.0)  # fmt: skip


def ranking_rows(ranking: SweepRanking, rounds: Sequence[Analysis]) -> list[str]:
    """The rankings side by side, in perfkit's order."""
    rows = table_head("configuration", "copy of", "Model Analyzer's ranks", "the throughput behind them, 1/s", ">perfkit's rank", "load",
                      ">throughput, 1/s", ">p99, ms")  # fmt: skip
    for one in ranking.rows:
        name = name_of(one)
        ranks = (str(analysis.ranking.index(name) + 1) if name in analysis.ranking else "–" for analysis in rounds)
        bests = (f"{best:.1f}" if best else "–" for best in (best_of(analysis, name) for analysis in rounds))
        rows.append(
            table_row(
                name, COPIES.get(name, "–"), ", ".join(ranks), ", ".join(bests), one.rank or "–", one.load,
                interval(one.figures.get("throughput"), 1), interval(one.figures.get("p99"), 1e6),
            )
        )  # fmt: skip
    return rows


def setting_rows(results: Mapping[str, Result], ranking: SweepRanking, rounds: Sequence[Analysis]) -> list[str]:
    """Every measurement of both programs: throughput, p99, and whether the constraint holds."""
    rows = table_head("configuration", ">concurrency", "Model Analyzer: throughput, 1/s", "p99, ms", "satisfies", ">requests",
                      ">perfkit: throughput, 1/s", ">p99, ms", "p99 constraint", ">requests")  # fmt: skip
    judged = {(name_of(ranking.rows[point.row]), point.load): point for point in ranking.points}
    for name, result in results.items():
        for measured in result.summary:
            setting = Setting(name, concurrency_of(measured))
            theirs = [analysis.figures[setting] for analysis in rounds if setting in analysis.figures]
            point = judged.get((name, measured.load.title))
            figures = {} if point is None else point.figures
            rows.append(
                table_row(
                    *setting,
                    ", ".join(f"{row.throughput_per_s:.1f}" for row in theirs),
                    ", ".join(f"{row.p99_ms:.1f}" for row in theirs),
                    ", ".join(yes_no(row.is_within) for row in theirs),
                    ", ".join(str(row.requests) for row in theirs),
                    interval(figures.get("throughput"), 1),
                    interval(figures.get("p99"), 1e6),
                    "invalid measurement" if point is None else point.verdict,
                    measured.requests.ok,
                )
            )
    return rows


def concurrency_of(point: Point) -> int:
    """The concurrency of a closed loop."""
    assert point.load.kind == "closed"
    return point.load.concurrency


def findings(ranking: SweepRanking, rounds: Sequence[Analysis]) -> list[str]:
    """How both rank the copies, and whether Model Analyzer's runs agree with each other."""
    lines, ranks = [], {name_of(one): one.rank for one in ranking.rows}
    for copy, original in COPIES.items():
        gaps = [abs(best_of(one, copy) / best_of(one, original) - 1) for one in rounds if best_of(one, original)]
        before = sum(one.ranking.index(copy) < one.ranking.index(original) for one in rounds if {copy, original} <= {*one.ranking})
        if ranks.get(copy) is None or ranks.get(original) is None:
            shared = "no rank to one of them: no load is known to satisfy the constraint"
        else:
            shared = "them the same rank" if ranks[copy] == ranks[original] else "them different ranks"
        lines.append(
            f"- {copy} and {original} are the same configuration. Model Analyzer ranks the copy first in {before} of {len(rounds)} runs and second "
            f"in the others; their throughputs differ by up to {max(gaps, default=0):.1%}. perfkit gives {shared}."
        )
    lines.append(f"- Different rankings in {len(rounds)} runs of Model Analyzer: {len({tuple(one.ranking) for one in rounds})}.")
    settings = sorted({setting for one in rounds for setting in one.figures})
    mixed = [one for one in settings if len({analysis.figures[one].is_within for analysis in rounds if one in analysis.figures}) > 1]
    shown = ", ".join(f"{one.configuration} at {one.concurrency}" for one in mixed) or "none"
    return [*lines, f"- Measurements that satisfy the constraint in some of its runs and violate it in others: {shown}."]


NOT_SAID = (
    "## What each does not say",
    "",
    "Model Analyzer does not say",
    "",
    "- how uncertain a figure is: it ranks by the throughput of one measurement at each load, without an interval, so that copies of one",
    "  configuration get different ranks;",
    "- how many requests a p99 rests on (the counts above are from perf_analyzer's own output), or whether a constraint holds only by chance;",
    "- whether the load generator, or another program on the machine, disturbed the measurement;",
    "- which configuration is the default that it compares the best one with: with several models, its summary says that there is no gain.",
    "",
    "perfkit does not say",
    "",
    "- which configurations to try: Model Analyzer writes them (instances, batch sizes, queue delays), searches among them and restarts",
    "  Triton for each; perfkit measures those that it is given;",
    "- how much the same configuration varies between starts of the server: each configuration was started once, so a small difference between",
    "  two configurations may come from their starts;",
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
        results = read_results(out)
    except (PeerError, OSError, ResultError) as error:
        print(f"model_analyzer: {error}", file=sys.stderr)
        return 1
    ranking = rank_sweep([({"target.model": name}, result) for name, result in results.items()], "throughput", ())
    if ranking is None:
        print("model_analyzer: no load point of perfkit's is valid: measure on an idle machine, or at real-time priority", file=sys.stderr)
        return 1
    ranks = {name_of(one): one.rank for one in ranking.rows}
    is_tied = all(ranks.get(copy) == ranks.get(original) for copy, original in COPIES.items())
    priority = "" if os.sched_getscheduler(0) == os.SCHED_OTHER else " All programs ran at real-time priority."
    durations = ", ".join(f"{one.took_s:.0f} s" for one in rounds)
    lines = [
        f"# Model Analyzer and perfkit on the same Triton {version}",
        "",
        f"{machine}{priority} Model Analyzer {analyzer_version(program)} ran as it is, without a GPU ({durations}); `perfkit run` took {took_s:.0f} s and ended with",
        f"exit code {run.exit_code}. The model waits for 8 ms and 1 ms for each request of a batch on average (coefficient of variation 0.3).",
        f"The objective is throughput at p99 < {LIMIT_MS} ms, in closed loops of {', '.join(map(str, CONCURRENCIES))}. In brackets: perfkit's 95 % intervals.",
        "",
        "## Rankings",
        "",
        *ranking_rows(ranking, rounds),
        "",
        *findings(ranking, rounds),
        f"- Model Analyzer's summary of its first run: “{rounds[0].sentence}”",
        f"- perfkit's: “{' '.join(ranking_sentences(ranking))}”",
        "",
        "## Measurements",
        "",
        *setting_rows(results, ranking, rounds),
        "",
        *NOT_SAID,
    ]
    return publish(options.out, lines, is_met=is_tied)


if __name__ == "__main__":
    sys.exit(main())
