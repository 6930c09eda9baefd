"""Exports of short runs, for tests."""

import asyncio
import json
import pathlib
from typing import Any

import jsonschema

from perfkit.measurement.control import Interruption, RunObserver
from perfkit.measurement.lifecycle import measure_scenario
from perfkit.measurement.reply_spool import ReplySpool
from perfkit.perf_analyzer.export_file import ExportFile
from perfkit.scenario.file import read_scenario
from tests.undisturbed import undisturbed

SCHEMA = json.loads((pathlib.Path(__file__).parent / "profile_export.schema.json").read_text())


def export_of(folder, *scenarios, mode: Any = "concurrency"):
    """The export of scenarios, one after the other; the n-th has the value n."""
    path = folder / "export.json"
    with ExportFile(path, "2.60.0") as export:
        for number, scenario in enumerate(scenarios, 1):
            file = folder / "s.yaml"
            file.write_text(json.dumps({"telemetry": False, **scenario}))
            with ReplySpool(folder) as spool, undisturbed():
                loaded = read_scenario(file, environ={})
                asyncio.run(measure_scenario(loaded, folder / "out", RunObserver(), Interruption(), spool=spool))
                export.add(mode, number, spool)
    document = json.loads(path.read_text())
    jsonschema.validate(document, SCHEMA)
    return document


def requests_of(document):
    """The requests of an export's only experiment."""
    (experiment,) = document["experiments"]
    return experiment["requests"]
