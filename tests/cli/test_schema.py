"""`perfkit schema`: JSON Schemas in which every node is described, and which the files themselves satisfy."""

import json
import pathlib

import jsonschema
import pytest
import yaml

from perfkit.cli.main import main
from perfkit.cli.schema_model import DOCUMENTS, schema_of
from perfkit.cli.schema_words import BY_FIELD
from perfkit.gate.baseline import baseline_from_result
from tests import stored_results

ROOT = pathlib.Path(__file__).parents[2]
SCENARIOS = sorted((ROOT / "scenarios").glob("*.yaml"))


def objects_of(schema):
    """Each object's schema by its name."""
    return {"": schema, **{name: node for name, node in schema.get("$defs", {}).items() if "properties" in node}}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_node_of_every_schema_is_described(name):
    schema = schema_of(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    for title, node in objects_of(schema).items():
        assert node["description"], title
        assert [key for key, property_ in node["properties"].items() if not property_.get("description")] == [], title


def test_no_description_is_of_a_field_that_is_gone():
    fields = {}
    for name in DOCUMENTS:
        for title, node in objects_of(schema_of(name)).items():
            fields[title or DOCUMENTS[name][1]().__name__] = len(node["properties"])
    assert {field.partition(".")[0] for field in BY_FIELD} <= set(fields)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.name)
def test_a_scenario_names_the_schema_for_editors_and_satisfies_it(path):
    first = path.read_text().splitlines()[0]
    assert first == "# yaml-language-server: $schema=../docs/scenario.schema.json"
    schema = json.loads((path.parent / first.partition("$schema=")[2]).read_text())
    assert schema == schema_of("scenario"), "write it anew: perfkit schema scenario > docs/scenario.schema.json"
    jsonschema.validate(yaml.safe_load(path.read_text()), schema)
    with pytest.raises(jsonschema.ValidationError, match="modle"):
        jsonschema.validate({"target": {"modle": "m"}, "load": {"closed": {"concurrency": 1}}}, schema)


def test_documents_satisfy_their_schemas():
    result = stored_results.result()
    jsonschema.validate(result.document(), schema_of("result"))
    baseline = baseline_from_result(result)
    jsonschema.validate(baseline.document(), schema_of("baseline"))


def test_the_command_prints_the_schema_and_the_default_is_that_of_scenarios(capsys):
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == schema_of("scenario")
    assert main(["schema", "calibration"]) == 0
    assert json.loads(capsys.readouterr().out) == schema_of("calibration")
