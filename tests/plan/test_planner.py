"""Plans of results whose truth is known: M/M/1 with a service time of 10 ms."""

import dataclasses
import json
import math

import jsonschema
import pytest

from perfkit.errors import InconclusiveError, ResultError, UsageError
from perfkit.figures.resources import GpuFigures
from perfkit.plan import configuration
from perfkit.plan.configuration import plan_capacity
from perfkit.plan.evidence import gather_evidence, read_sources
from perfkit.plan.input_texts import parse_prices
from perfkit.plan.inputs import PlanInputs, parse_slo
from perfkit.plan.model import plan_document
from perfkit.plan.usl import UslFit
from perfkit.report.plan import headline
from tests.closed_schema import validator_of
from tests.queue_results import Writer

LIMIT_S = 0.3
TRUTH = 100 - math.log(100) / LIMIT_S  # 84.6/s


def inputs(**changes):
    return dataclasses.replace(PlanInputs(parse_slo(["p99<300ms"]), (1000.0,)), **changes)


def evidence_of(results):
    return gather_evidence(read_sources([str(one) for one in results]))


def planned_from(evidence, plan_inputs=None):
    return plan_capacity(evidence, plan_inputs or inputs())


def planned(results, plan_inputs=None):
    return planned_from(evidence_of(results), plan_inputs)


@pytest.fixture(scope="module")
def mm1_evidence(mm1_results):
    return evidence_of(mm1_results)


@pytest.fixture(scope="module")
def plan(mm1_evidence):
    return plan_capacity(mm1_evidence, inputs(prices=parse_prices(["$2.50/h"]), redundancy=1, zones=3, rates_per_s=(55.0, 200.0)))


@pytest.fixture(scope="module")
def started_once(tmp_path_factory):
    """A result of a server that was started once, up to an overload."""
    return Writer(tmp_path_factory.mktemp("started_once"))((20, 35, 50, 60, 70, 110), overloaded_from=100)


@pytest.fixture(scope="module")
def source(started_once):
    """The same result, as it is read."""
    return read_sources([str(started_once)])[0]


def changed_points(source, change):
    """Evidence of the source with `change(point)` in place of each point's keys."""
    points = tuple(point.model_copy(update=change(point)) for point in source.result.points)
    return gather_evidence([dataclasses.replace(source, result=source.result.model_copy(update={"points": points}))])


def test_the_capacity_is_that_of_the_queue(plan):
    """Three restarts of 40 s per rate leave the p99 near saturation uncertain by some 15 %; the seed is fixed. The throughput
    under overload, 100/s, bounds the capacity from above."""  # fmt: skip
    (one,) = plan.configurations
    assert one.capacity.per_s == pytest.approx(TRUTH, rel=0.08)
    assert one.capacity.low_per_s < one.capacity.per_s < one.capacity.high_per_s <= 101
    assert (one.slo_percentile, one.runs, one.refusal) == ("p99", 3, "")


def test_the_distribution_of_the_capacity_has_the_lower_limit_as_its_5_percent_quantile(plan):
    capacity = plan.chosen.capacity
    assert len(capacity.draws_per_s) >= 400
    assert list(capacity.draws_per_s) == sorted(capacity.draws_per_s)
    assert sum(draw < capacity.low_per_s for draw in capacity.draws_per_s) == pytest.approx(0.05 * len(capacity.draws_per_s), abs=1)


def test_the_fleet_is_planned_with_the_lower_limit_of_the_capacity(plan):
    one, low = plan.chosen, plan.chosen.capacity.low_per_s
    assert one.fleet.for_headroom == math.ceil(1000 / (0.7 * low))
    assert one.fleet.for_redundancy == math.ceil(1000 / (0.9 * low)) + 1
    assert one.fleet.replicas == max(one.fleet.for_headroom, one.fleet.for_redundancy, one.fleet.for_zone_loss)
    assert one.cost_per_hour == 2.5 * one.fleet.replicas
    assert one.cost_per_million == pytest.approx(one.cost_per_hour / 3.6)


def test_the_prediction_intervals_contain_the_percentiles_of_the_queue(plan):
    found = {(one.percentile, one.expected.rate_per_s): one.expected for one in plan.chosen.predictions}
    assert set(found) == {(name, 55.0) for name in ("p50", "p95", "p99")}
    for name, quantile in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        expected = found[name, 55.0]
        assert expected.low < -math.log(1 - quantile) / 45 * 1e9 < expected.high
    assert any("No p99 is predicted at 200/s" in note for note in plan.chosen.notes)


def test_the_target_concurrency_follows_littles_law(plan):
    rate = plan.chosen.autoscaler_rate_per_s
    assert rate == pytest.approx(0.7 * plan.chosen.capacity.low_per_s)
    assert plan.chosen.target_concurrency == pytest.approx(rate / (100 - rate), rel=0.15)


def test_closed_loops_give_scalability_law_knee_and_bounds(plan):
    one = plan.chosen
    assert isinstance(one.usl, UslFit)
    assert one.usl.peak.concurrency == pytest.approx(56.86, rel=0.01)
    assert one.bounds.saturating_concurrency == pytest.approx(15.7, rel=0.05)
    assert one.knee.concurrency == 16


def test_a_capacity_above_the_measured_rates_is_marked_as_extrapolated(plan):
    assert plan.chosen.capacity.per_s > 80
    assert plan.chosen.extrapolated[0].startswith("The capacity, ")
    assert "is above the rates at which the target kept up (measured from 20.0/s to 80.0/s)" in plan.chosen.extrapolated[0]


def test_the_table_grows_with_demand_headroom_and_redundancy(plan):
    rows = {(row.demand_per_s, row.headroom, row.redundancy): row.replicas for row in plan.chosen.table}
    assert {demand for demand, _, _ in rows} == {500.0, 1000.0, 1500.0, 2000.0}
    assert rows[1000.0, 0.3, 1] == plan.chosen.fleet.replicas
    for (demand, headroom, redundancy), replicas in rows.items():
        assert replicas <= rows.get((demand, headroom, redundancy + 1), replicas)
        assert replicas <= rows[2000.0, headroom, redundancy]


def test_the_document_is_json_without_infinite_numbers(plan):
    document = json.loads(json.dumps(plan_document(plan), allow_nan=False))
    assert document["schema"] == "perfkit.plan/1"
    assert list(document)[:2] == ["schema", "question"]
    assert document["question"]["demands_per_s"] == [1000.0]
    assert document["configurations"][0]["capacity"]["low_per_s"] == plan.chosen.capacity.low_per_s
    assert "draws_per_s" not in document["configurations"][0]["capacity"]


def test_the_same_inputs_give_the_same_plan(mm1_evidence, plan):
    assert plan_document(plan_capacity(mm1_evidence, plan.inputs)) == plan_document(plan)


def test_a_batched_request_counts_as_several_inferences(write):
    folder = write((20, 35, 50, 60, 70, 110), batch_size=4, overloaded_from=100)
    plan = planned([folder])
    one, sentences = plan.chosen, headline(plan)
    assert one.fleet.for_headroom == math.ceil(1000 / (0.7 * 4 * one.capacity.low_per_s))
    assert one.cost_per_hour is None
    assert "serve 1,000 inferences/s within" in sentences[0]
    assert " requests/s of 4 inferences each (90 % interval " in sentences[1]


def test_invalid_outputs_do_not_count_as_goodput(source):
    def with_invalid_outputs(point):
        return {"requests": point.requests.model_copy(update={"ok": point.requests.ok - 100, "invalid_output": 100})}

    (right,), (wrong,) = gather_evidence([source]), changed_points(source, with_invalid_outputs)
    (at_20, *_), (less_at_20, *_) = (plan_capacity([one], inputs()).chosen.points for one in (right, wrong))
    assert at_20.goodput_per_s is not None
    assert less_at_20.goodput_per_s == pytest.approx(at_20.goodput_per_s - 100 / 400)


def test_a_falling_demand_exhausts_nothing(mm1_evidence):
    peaks = tuple((f"2026-03-{day:02d}", 700 * 0.99**day) for day in range(1, 31))
    exhaustion = plan_capacity(mm1_evidence, inputs(peaks=peaks, replicas_now=20)).exhaustion
    assert (exhaustion.refusal, exhaustion.p10_days, exhaustion.more_days) == ("beyond_history", None, None)


def test_the_cheapest_configuration_is_chosen(mm1_results, write, monkeypatch):
    slow = write((20, 35, 50, 60, 65, 110), model="n", restart=0.3, overloaded_from=100)
    named = [f"fast={folder}" for folder in mm1_results[:3]] + [f"slow={slow}"]
    evidence = evidence_of(named)
    dear = planned_from(evidence, inputs(prices=parse_prices(["fast=$2.50/h", "slow=$2.40/h"])))
    cheap = planned_from(evidence, inputs(prices=parse_prices(["fast=$2.50/h", "slow=$0.20/h"])))
    unpriced = planned_from(evidence)
    assert (dear.cheapest, cheap.cheapest, unpriced.cheapest) == ("fast", "slow", "fast")
    assert not unpriced.compares_costs
    costs = {(one.name, it.headroom): (it.cost_per_hour, it.slo_percentile_ns) for one in dear.configurations for it in one.operations}
    front = [costs[key] for key in dear.front]
    assert all(not (cost < a and time < b) for cost, time in costs.values() for a, b in front)
    monkeypatch.setattr(configuration, "plan_configuration", lambda *_: pytest.fail("a capacity was fitted"))
    with pytest.raises(UsageError, match="slow has no price, but others have one"):
        planned_from(evidence, inputs(prices=parse_prices(["fast=$2.50/h"])))
    with pytest.raises(UsageError, match="there is no configuration 'medium'; the configurations are fast, slow"):
        planned_from(evidence, inputs(prices=parse_prices(["medium=$2.50/h"])))


def test_a_configuration_that_cannot_be_planned_is_left_out_with_a_reason(mm1_results, write):
    hopeless = write((20, 35, 50, 60), model="n", restart=60.0)
    plan = planned([f"fast={folder}" for folder in mm1_results[:3]] + [f"slow={hopeless}"])
    assert plan.cheapest == "fast"
    assert plan.configurations[1].refusal.startswith("The SLO is never met, not even at the lowest rate that counts, 20.0/s (p99 ")


def test_a_growing_demand_exhausts_the_fleet(mm1_evidence):
    peaks = tuple((f"2026-03-{day:02d}", 700 * 1.01**day) for day in range(1, 31))
    plan = plan_capacity(mm1_evidence, inputs(peaks=peaks, replicas_now=20))
    capacity = 20 * plan.chosen.capacity.low_per_s * 0.7
    assert plan.exhaustion.capacity_per_s == pytest.approx(capacity)
    assert plan.exhaustion.p50_days == math.ceil(math.log(capacity / (700 * 1.01**30)) / math.log(1.01))


def test_too_few_peaks_refuse_the_forecast_and_not_the_plan(mm1_evidence):
    peaks = tuple((f"2026-03-{day:02d}", 700 * 1.01**day) for day in range(1, 14))
    plan = plan_capacity(mm1_evidence, inputs(peaks=peaks, lead_time_days=14))
    assert plan.chosen.fleet.replicas > 0
    assert (plan.forecast, plan.exhaustion.refusal, plan.exhaustion.more_days) == (None, "few_days", 1)
    assert plan_document(plan)["exhaustion"]["p50_days"] is None


def test_gpu_energy_is_reported_in_total_and_above_idle(source):
    """200 W of two GPUs for 400 s, by their counters, at 50/s: 4 J an inference, 3.2 J above 40 W."""
    gpus = (
        GpuFigures("a", "H", "nvml", utilization_mean=0.5, energy_j=30_000.0, power_mean_w=1.0),
        GpuFigures("b", "H", "nvml", utilization_mean=0.7, energy_j=50_000.0, power_mean_w=1.0),
        GpuFigures("c", "H", "nvml", utilization_mean=1.0, energy_j=90_000.0, used_by_server=False),
    )
    evidence = changed_points(source, lambda _: {"gpus": gpus})
    plan = plan_capacity(evidence, inputs(idle_power_w=40.0))
    at_50 = next(point for point in plan.chosen.points if point.rate_per_s == 50)
    assert (at_50.gpu_utilization, at_50.power_w) == pytest.approx((0.6, 200.0))
    assert (at_50.energy.gross_j, at_50.energy.above_idle_j) == pytest.approx((4.0, 3.2))
    assert plan.chosen.energy.gross_j == pytest.approx(200 / plan.chosen.fleet.rate_per_replica_per_s)


def test_without_energy_counters_the_mean_power_and_the_measured_idle_power_are_used(source):
    gpus = (GpuFigures("a", "H", "nvml", power_mean_w=100.0, idle_power_w=25.0),)
    evidence = changed_points(source, lambda _: {"gpus": gpus})
    at_50 = next(point for point in plan_capacity(evidence, inputs()).chosen.points if point.rate_per_s == 50)
    assert (at_50.gpu_utilization, at_50.power_w) == (None, 100.0)
    assert (at_50.energy.gross_j, at_50.energy.above_idle_j) == pytest.approx((2.0, 1.5))


def test_a_result_without_its_log_can_be_planned_with_a_note(write):
    folder = write((20, 35, 50, 60, 70, 110), overloaded_from=100)
    (folder / "latency.hlog").unlink()
    plan = planned([folder])
    assert plan.chosen.capacity.low_per_s < plan.chosen.capacity.per_s
    assert any("no latency.hlog" in note for note in plan.chosen.notes)


def test_a_single_start_of_the_server_has_a_note(source):
    plan = plan_capacity(gather_evidence([source]), inputs())
    assert plan.chosen.notes[0].startswith("The server was started once")


def test_a_percentile_with_few_independent_samples_has_a_note(source):
    """A p99 needs 662 independent samples."""
    evidence = changed_points(source, lambda point: {"effective_samples": {"p99": 600.0 if point.load.level == 70 else 10_000.0}})
    assert any("p99 has fewer independent samples than it needs at 70.0/s" in note for note in planned_from(evidence).chosen.notes)


def test_an_error_rate_above_its_limit_misses_the_slo(write):
    folder = write((20, 35, 50, 60, 70), rejected=2000)
    with pytest.raises(InconclusiveError, match="never met"):
        planned([folder], inputs(slo=parse_slo(["p99<10s,error_rate<1%"])))


def test_an_error_rate_that_too_few_requests_show_has_a_note(source):
    """None of n requests failed: Wilson's upper end of a 90 % interval is z²/(n + z²)."""
    number = sum(point.requests.scheduled for point in source.result.points if point.load.level <= 70)
    high = 1.645**2 / (number + 1.645**2)
    assert 0.00001 < high < 0.0001, "the limits lie on both sides"

    def notes(limit):
        plan = planned_from(changed_points(source, lambda _: {}), inputs(slo=parse_slo([f"p99<300ms,error_rate<{limit}"])))
        told = [note for note in plan.chosen.notes if note.startswith("Whether the error rate keeps its limit, ")]
        assert plan.verdict == ("cannot be told" if told else "holds")
        return told, headline(plan)[0]

    (told,), sentence = notes("0.001%")
    assert (
        f"cannot be told: at the rates up to the capacity it was 0 %, and may be up to {100 * high:.2g} % (90 % interval); measure more requests."
        in told
    )
    assert "errors < 0.001 %" in sentence
    assert notes("0.01%")[0] == []
    (never,), sentence = notes("0%")
    assert never.endswith("no number of requests can show that none fails, so give a limit above zero.")
    assert "within p99 < 300 ms, no errors, " in sentence


def test_a_throughput_that_falls_under_overload_limits_the_capacity_to_the_highest_rate_kept_up_with(write):
    rates = (20, 35, 50, 60, 70, 200)
    one = planned([write(rates, overloaded_from=100, slowest_per_s=40)], inputs(slo=parse_slo(["p99<10s"]))).chosen
    assert (one.capacity.per_s, one.capacity.is_cut) == (70.0, True)
    assert any("The capacity is limited to 70.0/s" in note for note in one.notes)


def test_an_invalid_rate_is_left_out_of_the_curves(write):
    plan = planned([write((20, 35, 50, 60, 70, 75, 110), overloaded_from=100, invalid=(60,))])
    assert [point.state for point in plan.chosen.points] == ["kept up"] * 3 + ["not valid"] + ["kept up"] * 2 + ["overloaded"]
    assert "At 60.0/s the measurement was not valid: it is left out of the curves." in plan.chosen.notes


@pytest.mark.parametrize(
    ("options", "limit", "error", "message"),
    [
        ({"rates": (50,)}, "300ms", UsageError, "Only one rate was measured, 50.0/s, and one point gives no capacity"),
        ({"rates": (20, 35, 50, 60)}, "10s", InconclusiveError, "The SLO is never missed, not even at the highest rate, 60.0/s"),
        (
            {"rates": (20, 35, 50, 60)},
            "1ms",
            InconclusiveError,
            "The SLO is never met, not even at the lowest rate that counts, 20.0/s (p99 ",
        ),
        (
            {"rates": (20, 35, 80)},
            "100ms",
            InconclusiveError,
            # 3 × 662 samples of a p99 at 32/s
            (
                "A plan needs 4 rates at which the target kept up and p99 is known, and only 3 were measured (20.0/s, 35.0/s, 80.0/s). "
                "Measure more rates below saturation, such as 32.0/s, 44.0/s, 56.0/s and 68.0/s (load.open.rate), in windows of at least 63 s"
            ),
        ),
        (
            {"rates": (20, 35, 50, 80, 110), "overloaded_from": 100, "invalid": (35,)},
            "100ms",
            InconclusiveError,
            "only 3 were measured (20.0/s, 50.0/s, 80.0/s). Not counted: 35.0/s (not valid), 110/s (overloaded). Measure more",
        ),
        (
            {"rates": (20, 35, 50, 60), "invalid": (20, 35)},
            "1ms",
            InconclusiveError,
            "Lower rates were measured, and cannot be judged: 20.0/s (not valid), 35.0/s (not valid). Measure these again",
        ),
        ({"rates": (20, 35), "invalid": (20, 35)}, "300ms", InconclusiveError, "No measurement is valid (20.0/s, 35.0/s)"),
        ({"rates": (), "concurrencies": (1, 2), "throughputs": (100, 180)}, "300ms", UsageError, "these results hold only closed loops"),
    ],
)
def test_measurements_that_give_no_capacity_are_refused(write, options, limit, error, message):
    with pytest.raises(error) as caught:
        planned([write(**options)], inputs(slo=parse_slo([f"p99<{limit}"])))
    assert message in str(caught.value)


def test_different_configurations_need_labels(write):
    rates = (20, 35, 50, 60, 70, 110)
    one, other, threads = write(rates), write(rates, model="n"), write(rates, server={"threads": 2})
    with pytest.raises(UsageError, match=r"results without labels must be .* and these differ \(model m and n\); give .* such as a=.* b="):
        planned([one, other])
    with pytest.raises(UsageError, match=r"the results labelled 'a' must be .* and these differ \(server threads \(default\) and 2\)"):
        planned([f"a={one}", f"a={threads}"])
    with pytest.raises(UsageError, match="this result has no label, but others have"):
        planned([f"a={one}", other])
    with pytest.raises(UsageError, match="given twice"):
        planned([one, one])
    with pytest.raises(ResultError, match=r"no such file or folder"):
        planned([one.parent / "nothing"])


def rewritten(folder, change):
    """A result whose document is changed in place."""
    document = json.loads((folder / "result.json").read_text())
    change(document)
    (folder / "checksums.sha256").unlink(missing_ok=True)
    (folder / "result.json").write_text(json.dumps(document))
    return folder


def test_results_of_different_cpus_are_different_configurations(write):
    """A server on the machine of the load generator; CPUs that a result does not hold are unknown, not different."""

    def on(cpu_model):
        def change(document):
            document["environment"] = {
                "generator": {"cpu_model": cpu_model, "cpus": 2}, "target": {"protocols": {"http": {"path": "loopback"}}},
            }  # fmt: skip

        return rewritten(write((20, 35)), change)

    epyc, xeon, unknown = on("AMD EPYC 7763 64-Core Processor"), on("Intel(R) Xeon(R) CPU @ 2.20GHz"), write((20, 35))
    with pytest.raises(
        UsageError, match=r"these differ \(hardware 2 CPUs \(AMD EPYC 7763\) and 2 CPUs \(Intel Xeon\)\); give each a label"
    ):
        evidence_of([epyc, xeon])
    (evidence,) = evidence_of([unknown, epyc])
    assert (evidence.hardware, evidence.runs) == ("2 CPUs (AMD EPYC 7763)", 2)


def test_changing_rates_and_mixed_arrival_processes_are_refused(write):
    def moving(document):
        document["scenario"]["load"] = {"open": {"rate": ["20/s"], "shape": {"ramp": {"to": 2, "over": "5s"}}}}

    def constant(document):
        for point in [*document["points"], *document["summary"]]:
            point["load"]["arrivals"] = "constant"

    one, ramp, even = write((20, 35)), rewritten(write((20, 35)), moving), rewritten(write((20, 35)), constant)
    with pytest.raises(UsageError, match=r"its rates change over time \(load\.open\.shape\)"):
        planned([one, ramp])
    with pytest.raises(UsageError, match=r"their arrivals differ \(poisson and constant\)"):
        planned([one, even])
    assert len(gather_evidence(read_sources([f"a={one}", f"b={even}"]))) == 2


def test_the_notes_name_the_peculiarities_of_the_sources(write):
    def elsewhere(document):
        document["scenario"]["target"]["url"] = "http://127.0.0.1:8000"

    def cut_short(document):
        document["status"] = "interrupted"

    def thinking(document):
        document["scenario"]["load"] = {"closed": {"concurrency": [1, 2], "think_time": "1ms"}}

    opened = [rewritten(write((20, 35)), elsewhere) for _ in range(2)]
    closed = write((), concurrencies=(1, 2), throughputs=(100, 180))
    rewritten(opened[1], cut_short)
    rewritten(rewritten(closed, thinking), elsewhere)
    (one,) = gather_evidence(read_sources([str(folder) for folder in (*opened, closed)]))
    assert one.closed_points == ()
    assert one.single_request_batches == ()
    assert one.notes == (
        f"{opened[1]}: its run was interrupted; the measurements up to then are used.",
        f"{closed}: its closed loops have a think time, and are left out of the scalability law.",
        "perfkit did not start the server: each result counts as a restart, which is right only if the server was restarted between them.",
    )
    assert gather_evidence(read_sources([str(write((20, 35))), str(write((20, 35)))]))[0].notes == ()


def test_each_protocol_is_a_configuration(write):
    rates = (20, 35, 50, 60, 70, 110)
    folders = [write(rates, protocol=protocol, overloaded_from=100) for protocol in ("http", "grpc")]
    assert [one.name for one in planned(folders).configurations] == ["m http", "m grpc"]


def test_another_seed_of_a_synthetic_server_is_the_same_configuration(write):
    rates = (20, 35, 50, 60, 70, 110)
    laws = [f"service=exponential:10ms,servers=1,seed={seed}" for seed in (1, 2)]
    (one,) = planned(
        [write(rates, server={"synthetic": law}, seed=seed, overloaded_from=100) for seed, law in enumerate(laws)]
    ).configurations
    assert one.runs == 2


def test_the_plan_satisfies_its_json_schema(plan):
    document = json.loads(json.dumps(plan_document(plan)))
    validator_of("plan").validate(document)
    del document["question"]
    with pytest.raises(jsonschema.ValidationError, match="'question' is a required property"):
        validator_of("plan").validate(document)
