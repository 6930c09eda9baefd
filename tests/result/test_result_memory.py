"""The memory that reading a result takes: that of its load points once, although they are read as JSON and become models."""

import json
import pathlib
import tracemalloc

from perfkit.result.file import parse_document
from perfkit.result.json_file import parse_json
from perfkit.result.model import SCHEMA, Point, Result
from tests.stored_results import point, result


def test_load_points_are_not_in_memory_as_json_and_as_models_at_once():
    many = [point(load={"kind": "closed", "concurrency": number}) for number in range(1, 301)]
    data = json.dumps({**result().document(), "points": many, "summary": many}).encode()
    parse_document(pathlib.Path("f"), parse_json(pathlib.Path("f"), data), Result, SCHEMA)  # whose models are built at their first use
    tracemalloc.start()
    try:
        document = parse_json(pathlib.Path("f"), data)
        as_json, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        read = parse_document(pathlib.Path("f"), document, Result, SCHEMA, {"points": Point, "summary": Point})
        _, peak = tracemalloc.get_traced_memory()
        del document
        as_models, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (len(read.points), len(read.summary)) == (300, 300)
    assert peak < 0.75 * (as_json + as_models)
