"""`perfkit schema`: JSON Schemas that the files themselves satisfy."""

import functools
import json
import pathlib

import jsonschema
import pytest
import yaml

from perfkit.cli import schema
from perfkit.cli.main import main
from perfkit.cli.schema import DOCUMENTS
from perfkit.clock import parse_instant
from perfkit.comparison.result_comparison import compare_results
from perfkit.gate.baseline import baseline_from_result
from perfkit.gate.folder import FixedSettings, GateFolder, GateInputs, GateManifest
from perfkit.history.accepted import write_accepted
from perfkit.history.check import Recent, check_history, check_json
from perfkit.history.series import HistoryEntry, Series
from perfkit.history.trend import Trend, find_steps, steps_json
from perfkit.report.comparison import comparison_json
from perfkit.result.model import result_document
from perfkit.result.search import FittedCurve, LimitCount, Search, SearchProbe
from perfkit.result.sweep import SweepFolder, SweepRank
from tests import stored_results
from tests.closed_schema import validator_of
from tests.gate.tune.tune_outcomes import make_outcome
from tests.history.test_accepted import change
from tests.report.conftest import Synthetic
from tests.simulated_pairs import make_pairs

ROOT = pathlib.Path(__file__).parents[2]
SCENARIO_SCHEMA = json.loads((ROOT / "docs/scenario.schema.json").read_text())
SCENARIOS = sorted((ROOT / "scenarios").glob("*.yaml"))
schema_of = functools.cache(schema.schema_of)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_schema_is_one_and_describes_each_object(name):
    found = schema_of(name)
    jsonschema.Draft202012Validator.check_schema(found)
    objects = [found, *(node for node in found.get("$defs", {}).values() if "properties" in node)]
    assert [node["title"] for node in objects if not node["description"]] == []


def test_descriptions_are_the_docstrings_of_classes_and_fields_also_of_inherited_ones():
    objects = schema_of("scenario")["$defs"]
    assert objects["ClosedLoop"]["description"].startswith("A fixed number of requests in flight")
    batch = objects["Workload"]["properties"]["batch_size"]["description"]
    assert batch.startswith("Inferences per request")
    assert objects["MixedWorkload"]["properties"]["batch_size"]["description"] == batch
    limit = schema_of("result")["$defs"]["Failure"]["properties"]["message"]["description"]
    assert limit == "The server's words, at most 300 characters; None for all other messages together."


def test_a_dataclass_is_described_as_it_is_written():
    plan = schema_of("plan")
    assert list(plan["properties"])[:2] == ["schema", "question"]
    assert {"inputs", "schema"}.isdisjoint(plan["required"])
    assert "draws_per_s" not in plan["$defs"]["Capacity"]["properties"]
    assert {"fits", "paths_per_s"}.isdisjoint(plan["$defs"]["Forecast"]["properties"])
    assert plan["$defs"]["Capacity"]["properties"]["clusters"]["type"] == ["number", "null"], "infinite where a bound decides"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.name)
def test_a_scenario_names_the_schema_for_editors_and_satisfies_it(path):
    first = path.read_text().splitlines()[0]
    assert first == "# yaml-language-server: $schema=../docs/scenario.schema.json"
    jsonschema.Draft202012Validator(SCENARIO_SCHEMA).validate(yaml.safe_load(path.read_text()))


def test_the_schema_for_editors_is_that_of_the_code_and_refuses_an_unknown_key():
    assert schema_of("scenario") == SCENARIO_SCHEMA, "write it anew: perfkit schema scenario > docs/scenario.schema.json"
    with pytest.raises(jsonschema.ValidationError, match="modle"):
        jsonschema.Draft202012Validator(SCENARIO_SCHEMA).validate({"target": {"modle": "m"}, "load": {"closed": {"concurrency": 1}}})


def written_documents(folder):
    """A document of each kind as perfkit writes it, but for plans and calibrations, whose tests are beside their makers."""
    results = [Synthetic(folder / name, repetitions=3).write() for name in ("a", "b")]
    search = Search(
        slo={"p99": "50ms"}, confidence=0.9, precision=0.05, capacity_per_s=18.0, low_per_s=17.0, high_per_s=19.0, stopped_because="precision",
        reason="The capacity is 18.0/s.",
        probes=(SearchProbe(rate_per_s=10, stage="bracket", met=True, overloaded=False, valid=True, took_s=1.0, limits={
            "p99": LimitCount(beyond=0, count=1000, allowed_share=0.01, dispersion=1.0)}),),
        curve=FittedCurve(limit="p99", centre_per_s=20.0, floor=0.001, intercept=-4, slope=9, points=3, effective_beyond=30, dispersion=2),
    )  # fmt: skip
    for document in (results[0], stored_results.result(), results[0].model_copy(update={"search": search})):
        yield "result", result_document(document)
    yield "baseline", baseline_from_result(results[0]).document()
    yield "comparison", json.loads(comparison_json(compare_results([("a", results[0]), ("b", results[1])])))
    sweep = SweepFolder(folder / "sweep", "threads", [({"server.threads": 2}, {})], SweepRank(where=("p99<150ms",)))
    sweep.record(0, "failed", "no such model")
    path = folder / "accepted.yaml"
    write_accepted(path, [change()])
    yield "accepted", json.loads(json.dumps(yaml.safe_load(path.read_text()), default=str))
    yield "tune", make_outcome([100, 160, 130, 0, 300], refused=[4]).document()
    yield "sweep", json.loads((sweep.folder / "sweep.json").read_text())
    inputs = GateInputs(scenario={"name": "x"}, baseline="http://a", candidate="http://b", control_pairs=0, perfkit="1")
    gate = GateFolder(folder / "gate", GateManifest(inputs=inputs, seed=7, started_at=results[0].started_at))
    gate.fix(FixedSettings(warmup_ns=10, window_ns=20, concurrency=4, rate_per_s=70.0, capacity_per_s=100.0, notes=("A note.",)))
    for pair in make_pairs(12, 1.1):
        gate.add(pair)
    yield "gate", json.loads((gate.partial / "gate.json").read_text())
    for pair in json.loads((gate.partial / "pairs.json").read_text()):
        yield "pair", pair
    entries = tuple(HistoryEntry(f"2026-01-{1 + n:02}T00:00:00.000+00:00", f"{n:040d}", "h", {}, "r") for n in range(24))
    trend = Trend(
        Series("smoke"), "http, concurrency 4", "p99", "ns", entries, tuple(2e6 * (1 + n % 3 / 100 + (n >= 12)) for n in range(24))
    )
    steps = find_steps(trend)
    assert steps
    yield "steps", json.loads(steps_json([(trend, steps)]))
    now = parse_instant("2026-02-01T00:00:00+00:00")
    yield (
        "history-check",
        json.loads(check_json(check_history([(trend, steps)], {trend.series: entries}, [trend], now=now, max_age_s=1.0, recent=Recent()))),
    )


def test_what_is_written_satisfies_its_schema_and_has_no_key_beyond_it(tmp_path):
    seen = set()
    for name, document in written_documents(tmp_path):
        seen.add(name)
        validator = validator_of(name)
        validator.validate(document)
        with pytest.raises(jsonschema.ValidationError, match="'unknown' was unexpected"):
            validator.validate({**document, "unknown": 1})
    assert seen == set(DOCUMENTS) - {"scenario", "verdict", "bisection", "plan", "calibration"}


def test_the_command_prints_the_schema_and_the_default_is_that_of_scenarios(capsys):
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == schema_of("scenario")
    assert main(["schema", "calibration"]) == 0
    assert json.loads(capsys.readouterr().out) == schema_of("calibration")
