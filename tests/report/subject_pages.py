"""A page of each subject, from small results, for tests that open them."""

import dataclasses
import datetime
import hashlib
import math
import pathlib
import random

from perfkit.comparison.result_comparison import compare_results
from perfkit.errors import MeasurementWarning
from perfkit.figures.resources import GpuFigures
from perfkit.gate.verdict import Comparison, Verdict
from perfkit.history.series import HistoryEntry, Series
from perfkit.history.trend import Trend, find_steps
from perfkit.plan.configuration import plan_capacity
from perfkit.plan.day_inputs import DayInputs, Spot
from perfkit.plan.evidence import Evidence, gather_evidence, read_sources
from perfkit.plan.input_texts import Price, parse_prices
from perfkit.plan.inputs import PlanInputs, RiskInputs, parse_slo
from perfkit.plan.model import CapacityPlan
from perfkit.plan.steps import parse_profile
from perfkit.report.comparison import comparison_html
from perfkit.report.history import render_trends_html
from perfkit.report.plan import write_plan
from perfkit.report.render import render_html
from perfkit.report.run import run_page
from perfkit.report.run_charts import run_charts
from perfkit.report.sweep import write_sweep_report
from perfkit.report.timeline import read_timeline
from perfkit.report.tune import render_tune_html
from perfkit.report.verdict_page import render_verdict_html
from perfkit.result.search import FittedCurve, LimitCount, Search, SearchProbe
from perfkit.result.sweep import SweepFolder, SweepRank
from perfkit.search.capacity_search import explain_search
from tests.gate.tune.tune_outcomes import make_outcome
from tests.queue_results import Writer, write_mm1_results
from tests.report.conftest import Synthetic


def write_page(subject: str, folder: pathlib.Path) -> pathlib.Path:
    """The page of a subject."""
    if subject in ("sweep", "plan"):
        return {"sweep": sweep_page, "plan": plan_page}[subject](folder)
    texts = {
        "search": lambda: search_page(folder), "gate": gate_page, "compare": lambda: compare_page(folder), "history": history_page,
        "tune": lambda: render_tune_html(make_outcome([100, 160, 130, 158, 300], refused=[4], rounds=8)),
    }  # fmt: skip
    file = folder / f"{subject}.html"
    file.write_text(texts[subject](), encoding="utf-8")
    return file


def search_page(folder: pathlib.Path) -> str:
    """A search of five probes, one of them not valid; the last one confirms the lower end of the interval."""
    probes = []
    for rate_per_s, beyond, stage in (
        (10, 1, "bracket"),
        (20, 21, "refine"),
        (40, 900, "bracket"),
        (21, 25, "refine"),
        (17.3, 6, "confirm"),
    ):
        limits = {"p99": LimitCount(beyond=beyond, count=1000, allowed_share=0.01, dispersion=1.0)}
        said = {"rate_per_s": rate_per_s, "stage": stage, "limits": limits, "overloaded": beyond > 100, "valid": beyond != 25}
        probes.append(SearchProbe.model_validate({**said, "met": beyond <= 10, "took_s": 1.0}))
    curve = FittedCurve(
        limit="p99", centre_per_s=20.0, floor=0.001, intercept=math.log(0.02), slope=9.0, points=3, effective_beyond=30.0, dispersion=2.0
    )
    search = Search(
        slo={"p99": "50ms"}, capacity_per_s=18.2, low_per_s=17.3, high_per_s=19.1, confidence=0.9, precision=0.05,
        stopped_because="precision", reason="", confirmation="passed", curve=curve, probes=tuple(probes),
    )  # fmt: skip
    search = search.model_copy(update={"reason": explain_search(search)})
    maker = Synthetic(folder / "search", protocols=("http",), concurrencies=(1, 2, 4, 8, 16), repetitions=1)
    result = maker.write().model_copy(update={"search": search})
    charts = run_charts(result, read_timeline(maker.folder, result))
    return render_html(run_page(result, charts))


def gate_page() -> str:
    """A paired gate that found a regression of p99."""
    noise = random.Random(3)
    known = {
        "metric": "p99", "load_point": "grpc, concurrency 16", "unit": "ns", "better": "lower", "baseline": 2e6, "candidate": 2.246e6,
        "estimate": 1.123, "interval": (1.079, 1.168), "confidence": 0.9667, "pairs": 15, "adjusted_p": 0.0004, "noise_band": 0.01, "margin": 0.1,
        "minimum_detectable_effect": 0.06, "verdict": "regressed", "reason": "p99, grpc, concurrency 16: +12.3 % [+7.9, +16.8], worse by more than the noise band of 1 % (adjusted p 0.0004).",
        "baseline_values": tuple(2e6 * noise.uniform(0.97, 1.03) for _ in range(15)),
        "candidate_values": tuple(2.246e6 * noise.uniform(0.97, 1.03) for _ in range(15)),
    }  # fmt: skip
    passed = {
        "metric": "p50", "baseline": 1e6, "candidate": 1.004e6, "estimate": 1.004, "interval": (0.996, 1.013), "adjusted_p": 0.6, "verdict": "pass",
        "reason": "p50, grpc, concurrency 16: +0.4 % [-0.4, +1.3], within the margin of 10 %.",
        "baseline_values": tuple(1e6 * noise.uniform(0.99, 1.01) for _ in range(15)), "candidate_values": tuple(1.004e6 * noise.uniform(0.99, 1.01) for _ in range(15)),
    }  # fmt: skip
    comparisons = (Comparison.model_validate(known), Comparison.model_validate({**known, **passed}))
    control = Comparison.model_validate({**known, **passed, "metric": "p99"})
    verdict = {
        "kind": "regressed", "reasons": ("After 15 pairs the candidate is worse by more than the noise band in 1 of 2 metrics.", known["reason"]), "notes": ("Restarted for every run.",), "mode": "paired", "scenario": "smoke",
        "baseline": "cmd:server-a", "candidate": "cmd:server-b", "false_alarm_rate": 0.01, "pairs": 15,
        "comparisons": comparisons, "control": (control,), "control_pairs": 15, "started_at": "2026-01-02T03:04:05.678+00:00",
        "environment": {"cpu": "A machine", "baseline": {"runs": 2}}, "looks": (12, 16, 20), "disturbed_pairs": 3, "duration_s": 421.0,
        "generator": {"cpu_share": 0.12, "machine_cpu_share": 0.97, "others": {"cpus": 0.6, "busiest": [{"name": "cc1plus", "pid": 77, "cpus": 0.55}]}},
        "timing": {
            "window_s": 4.0, "window_chosen_by": "trial", "run_overhead_s": 1.2, "load_points": 2,
            "noise": [{"metric": "p99", "load_point": "grpc, concurrency 16", "between": 0.021, "within_one_second": 0.018}],
        },
        "next_steps": [{
            "text": "To find the revision that made it slower, bisect with your own build and server.",
            "command": "perfkit bisect smoke --good REV --bad REV --build make --serve './server --port {port}'",
        }, {
            "text": "If the change is known and worth it, accept it until a date, in a file that is reviewed like code.",
            "command": "perfkit gate accept reports/smoke-gate-20260102T030405Z --reason 'why' --expires YYYY-MM-DD",
        }],
    }  # fmt: skip
    return render_verdict_html(Verdict.model_validate(verdict))


def compare_page(folder: pathlib.Path) -> str:
    """Three results, the last a tenth slower."""
    makers = [
        Synthetic(folder / f"side-{ms}", concurrencies=(1, 4), repetitions=3, seconds=15, service_ms=ms, has_intervals=True)
        for ms in (40.0, 40.1, 44.0)
    ]
    return comparison_html(compare_results([(maker.folder.name, maker.write()) for maker in makers]))


def history_page() -> str:
    """Sixty results with one step."""
    noise = random.Random(5)
    entries = tuple(
        HistoryEntry(
            f"2026-0{1 + n // 28}-{1 + n % 28:02}T00:00:00.000+00:00",
            hashlib.sha1(bytes([n]), usedforsecurity=False).hexdigest(),
            "host-a",
            {"kernel": str(n // 20)},
            "r",
        )
        for n in range(60)
    )
    values = [noise.uniform(0.97, 1.03) * (1.2 if n >= 35 else 1.0) for n in range(60)]
    trends = [
        Trend(
            Series("smoke", branch="main", machine="host-a"),
            "http, concurrency 4",
            "p99",
            "ns",
            entries,
            tuple(2e6 * value for value in values),
        ),
        Trend(
            Series("smoke", branch="main", machine="host-a"),
            "http, concurrency 4",
            "throughput",
            "per_s",
            entries,
            tuple(500 / value for value in values),
        ),
    ]
    return render_trends_html([(trend, find_steps(trend)) for trend in trends])


def sweep_page(folder: pathlib.Path) -> pathlib.Path:
    """A sweep of three cases, the others slower; in two of them the server's cache answered."""
    values: list[tuple[dict[str, int], dict[str, int]]] = [({"server.threads": threads}, {}) for threads in (1, 2, 4)]
    sweep = SweepFolder(folder / "sweep", "threads", values, SweepRank(where=("p99<150ms",)))
    for index, (case, service_ms) in enumerate(zip(sweep.document.cases, (50.0, 40.0, 45.0), strict=True)):
        hits = (MeasurementWarning("cache_hits", f"The server's response cache answered {40 * index} of 500 requests."),) * (index > 0)
        maker = Synthetic(
            sweep.folder / case.folder,
            protocols=("http",),
            concurrencies=(1, 2, 8),
            seconds=15,
            has_intervals=True,
            service_ms=service_ms,
            warnings=hits,
        )
        maker.write()
        sweep.record(index, "complete")
    write_sweep_report(sweep.folder)
    return sweep.folder / "report.html"


def plan_page(folder: pathlib.Path) -> pathlib.Path:
    """The page of `capacity_plan`."""
    write_plan(capacity_plan(folder), folder / "plan")
    return folder / "plan" / "plan.html"


def capacity_plan(folder: pathlib.Path) -> CapacityPlan:
    """A plan with every chart: two configurations with GPUs and closed loops, prices, a growing demand, a profile of the day.

    The day is not simulated, which would take about 15 s.
    """
    for name in ("fast", "slow"):
        (folder / name).mkdir()
    write = Writer(folder / "slow")
    slow = [write((10, 20, 30, 40, 45, 70), seed=seed, restart=0.6 + 0.02 * seed, seconds=200, overloaded_from=70) for seed in (3, 4)]
    fast = write_mm1_results(folder / "fast")
    sources = [f"{label}={one}" for label, results in (("A100", fast), ("L4", slow)) for one in results]
    inputs = PlanInputs(
        parse_slo(["p99<300ms"]), (1000.0,), zones=3, prices=parse_prices(["A100=$2.50/h", "L4=$1.10/h"]), replicas_now=45,
        peaks=_growing_peaks(), lead_time_days=14, rates_per_s=(55.0,),
        risk=RiskInputs(demand_uncertainty=0.2, outage_cost=Price(500.0, "$"), availability=0.99),
        day=DayInputs(parse_profile(_PROFILE, "day.csv"), cold_start_s=90.0, reserved_per_hour=0.7, spot=Spot(0.4, 0.05)),
    )  # fmt: skip
    return plan_capacity([_with_gpus(one, has_batches=one.label != "L4") for one in gather_evidence(read_sources(sources))], inputs)


_PROFILE = "hour,demand_per_s\n" + "".join(f"{hour},{550 - 450 * math.cos((hour - 2) * math.pi / 12):.0f}\n" for hour in range(24))


def _growing_peaks() -> tuple[tuple[str, float], ...]:
    """Daily peaks of 200 days up to about 1,000 a second, which grow by 0.2 % a day and are lower at weekends."""
    noise = random.Random(7)
    days = [datetime.date(2025, 6, 16) + datetime.timedelta(number) for number in range(200)]
    return tuple(
        (str(day), 680 * 1.002**number * (0.85 if day.weekday() > 4 else 1.0) * noise.uniform(0.95, 1.05))
        for number, day in enumerate(days)
    )


def _with_gpus(evidence: Evidence, *, has_batches: bool) -> Evidence:
    """The evidence with a GPU whose power and utilization rise with the rate; without batches, its queue cannot be simulated."""
    points = []
    for point in evidence.open_points:
        busy = min(point.rate_per_s / 100, 1.0)
        gpu = GpuFigures("GPU-1", evidence.label, "nvml", utilization_mean=busy, power_mean_w=60 + 240 * busy, idle_power_w=60.0)
        batches = point.batches if has_batches else ()
        points.append(dataclasses.replace(point, batches=batches, measured=point.measured.model_copy(update={"gpus": (gpu,)})))
    return dataclasses.replace(evidence, open_points=tuple(points), notes=("The server shared its CPU.",), hardware="A100 and L4")
