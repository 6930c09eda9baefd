"""Exports of short runs, for tests."""

import asyncio
import json
import pathlib
import subprocess
from typing import Any

import jsonschema

from benchmarks.peers.install import perf_analyzer_path
from perfkit.measurement.control import Interruption, RunObserver
from perfkit.measurement.lifecycle import measure_scenario
from perfkit.measurement.reply_spool import ReplySpool
from perfkit.perf_analyzer.export_file import ExportFile
from perfkit.scenario.file import read_scenario
from tests.undisturbed import undisturbed

VALIDATOR = jsonschema.Draft202012Validator(json.loads((pathlib.Path(__file__).parent / "profile_export.schema.json").read_text()))


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
    VALIDATOR.validate(document)
    return document


def requests_of(document):
    """The requests of an export's only experiment."""
    (experiment,) = document["experiments"]
    return experiment["requests"]


def assert_exported_alike(folder, url, model, data, protocol, options=()):
    """Exports three requests with this input data by perf_analyzer, with these options, and by perfkit, and compares the two."""
    (folder / "data.json").write_text(json.dumps({"data": [data]}))
    command = [perf_analyzer_path(), "-m", model, "-i", protocol, "-u", url, "--input-data", "data.json", "--request-count", "3", *options]
    subprocess.run([*command, "--profile-export-file", "theirs.json"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    scenario = {
        "target": {"url": f"{protocol}://{url}", "model": model},
        "workload": {"inputs": {name: {"value": one["content"], "shape": one["shape"]} for name, one in data.items()}},
        "load": {"closed": {"concurrency": 1}},
        "measure": {"warmup": "0s", "requests": 3, "repetitions": 1},
        **({"stream": {}} if "--streaming" in options else {}),
    }
    exported = json.loads((folder / "theirs.json").read_text())
    VALIDATOR.validate(exported)
    (theirs,), (ours,) = exported["experiments"], export_of(folder, scenario)["experiments"]
    assert [*ours] == [*theirs]
    assert ours["experiment"] == theirs["experiment"]
    assert len(ours["window_boundaries"]) == len(theirs["window_boundaries"]) == 2
    assert len(ours["requests"]) == len(theirs["requests"]) == 3
    for our, their in zip(ours["requests"], theirs["requests"], strict=True):
        assert [*our] == [*their]
        assert our["request_inputs"] == their["request_inputs"]
        assert our["response_outputs"] == their["response_outputs"]
        assert len(our["response_timestamps"]) == len(their["response_timestamps"])
        assert len(str(our["timestamp"])) == len(str(their["timestamp"])) == 19
