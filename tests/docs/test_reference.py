"""The reference: its generated parts are those of the code, and what people wrote names everything that there is."""

import ast
import json
import pathlib
import re

import pytest

from docs_build.reference.marked_parts import anchor, cell, with_parts
from docs_build.reference.pages import generated
from docs_build.reference.schema_sections import schema_sections
from perfkit.cli.main import COMMANDS
from perfkit.cli.schema import schema_of
from perfkit.result.interval_log import LOG_TAGS
from perfkit.telemetry.prometheus.exposition import _series_metric
from perfkit.telemetry.series import Series
from perfkit.telemetry.server.sampler import _TIMES as SERVER_TIMES

ROOT = pathlib.Path(__file__).parents[2]
REFERENCE = ROOT / "docs/reference"


def test_the_generated_parts_are_those_of_the_code():
    assert [path.name for path, text in generated().items() if path.read_text(encoding="utf-8") != text] == [], (
        "write them anew: make reference"
    )


def test_every_command_has_a_section():
    sections = re.findall(r"^## `perfkit (.+)`$", (REFERENCE / "commands.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sections == list(COMMANDS)


@pytest.mark.parametrize(("document", "page"), [("scenario", "scenario-keys.md"), ("result", "result-fields.md")])
def test_every_key_of_every_object_is_in_a_table_once(document, page):
    schema = schema_of(document)
    rows = re.findall(r"^\| `([\w.]+)` \|", (REFERENCE / page).read_text(encoding="utf-8"), re.MULTILINE)
    # objects that only name a variant, such as `closed` of `load`, are keys of each object around them
    variants = {row.partition(".")[2] for row in rows if "." in row}
    keys = [key for node in (schema, *schema["$defs"].values()) for key in node.get("properties", {})]
    assert sorted([*(row for row in rows if "." not in row), *variants]) == sorted(keys)


def test_the_metrics_for_prometheus_are_those_of_the_code():
    page = (REFERENCE / "metrics.md").read_text(encoding="utf-8").partition("## Metrics for Prometheus")[2]
    named = set(re.findall(r"^\| (.*?) \|", page, re.MULTILINE))
    shown = {name for cell in named for name in re.findall(r"`perfkit_(\w+)`", cell)}
    published = {call.args[0].value for call in calls("LiveMetric", "perfkit") if isinstance(call.args[0], ast.Constant)}
    times = {f"{name}_seconds" for name in LOG_TAGS}
    points = {"point_service_time_seconds", "point_response_time_seconds"}
    gpus = [[argument.value for argument in call.args[:3]] for call in calls("NvmlQuery", "perfkit/telemetry/gpu")]
    server = [(f"server_{name}", "", "ns") for name in SERVER_TIMES] + [
        ("server_answers_per_s", "", "per_s"),
        ("server_mean_batch", "", "count"),
    ]
    rates = [
        (call.args[0].value, "", "per_s") for call in calls("_rate", "perfkit/telemetry/host") if not call.args[0].value.endswith("_share")
    ]
    shares = [(call.args[0].value, "", "share") for call in calls("_ratio", "perfkit/telemetry/host")]
    others = {"worker_cpu_ratio", "worker_open_files", "tcp_sockets"}
    series = {_series_metric(Series(name, unit, {}, (0,), (0.0,))).name for name, _, unit in (*gpus, *server, *rates, *shares)}
    assert shown == published | times | points | series | others


def calls(name, folder):
    """All calls of a function in a folder."""
    texts = (path.read_text(encoding="utf-8") for path in (ROOT / folder).rglob("*.py"))
    trees = (ast.parse(text) for text in texts if f"{name}(" in text)
    nodes = (node for tree in trees for node in ast.walk(tree))
    return [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name]


def test_a_schema_becomes_a_section_for_each_object_at_its_shortest_place(monkeypatch):
    schema = {
        "properties": {
            "box": {"$ref": "#/$defs/Box", "description": "A box."},
            "part": {"$ref": "#/$defs/Part", "description": "One | part."},
            "load": {"oneOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}], "description": "A load."},
        },
        "required": ["part"],
        "$defs": {
            "Box": {
                "properties": {
                    "deep": {"type": "object", "additionalProperties": {"$ref": "#/$defs/Part"}, "description": "Parts by name."}
                }
            },
            "Part": {
                "description": "A part.",
                "properties": {"size": {"type": "integer", "minimum": 1, "default": 3, "description": "How large."}},
            },
            "A": {"properties": {"closed": {"$ref": "#/$defs/Closed", "description": "The one."}}},
            "B": {"properties": {"open": {"$ref": "#/$defs/Open", "description": "The other."}}},
            "Closed": {"description": "Closed.", "properties": {"think": {"type": "string", "examples": ["250us"], "default": 2_000_000}}},
            "Open": {"description": "Open.", "properties": {"rate": {"anyOf": [{"type": "number"}, {"type": "null"}]}}},
        },
    }
    monkeypatch.setattr("docs_build.reference.schema_sections.schema_of", lambda _: json.loads(json.dumps(schema)))
    text = schema_sections("x", has_defaults=True)
    assert text.splitlines() == [
        "| key | type | default | meaning |",
        "|---|---|---|---|",
        "| `box` | [mapping](#box) | – | A box. |",
        "| `part` | [mapping](#part) | required | One \\| part. |",
        "| `load` | `closed`, `open` | – | A load. |",
        "| `load.closed` | [mapping](#loadclosed) | – | The one. |",
        "| `load.open` | [mapping](#loadopen) | – | The other. |",
        "",
        "## `box`",
        "",
        "| key | type | default | meaning |",
        "|---|---|---|---|",
        "| `deep` | mapping of names to [mapping](#part) | – | Parts by name. |",
        "",
        "## `part`",
        "",
        "A part.",
        "",
        "| key | type | default | meaning |",
        "|---|---|---|---|",
        "| `size` | whole number, at least 1 | `3` | How large. |",
        "",
        "### `load.closed`",
        "",
        "Closed.",
        "",
        "| key | type | default | meaning |",
        "|---|---|---|---|",
        "| `think` | duration | `2ms` |  |",
        "",
        "### `load.open`",
        "",
        "Open.",
        "",
        "| key | type | default | meaning |",
        "|---|---|---|---|",
        "| `rate` | number | – |  |",
    ]


def test_only_what_is_between_the_marks_is_written_anew():
    page = "# A\n\n<!-- generated: x -->\nold\n<!-- end of x -->\n\nkept\n"
    filled = with_parts(page, {"x": lambda: "new\n"})
    assert filled == "# A\n\n<!-- generated: x -->\n\nnew\n\n<!-- end of x -->\n\nkept\n"
    assert with_parts(filled, {"x": lambda: "new\n"}) == filled
    with pytest.raises(KeyError, match="x"):
        with_parts(page, {})


def test_cells_and_anchors():
    assert cell("a |\n  b") == "a \\| b"
    assert anchor("`points[].load` with `kind: closed`") == "pointsload-with-kind-closed"
