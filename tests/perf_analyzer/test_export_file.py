"""The profile export: its values, and what a run puts into it."""

import itertools
import json
import os
import pathlib
import struct
import time

import pytest

from perfkit.errors import ProtocolError, StorageError, UsageError
from perfkit.measurement.reply_spool import ReplySpool, SpooledRequest
from perfkit.perf_analyzer.export_file import ExportFile, exported_value
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Datatype, Tensor
from tests.json_server import JsonHandler, serving, v2_handler
from tests.perf_analyzer.exports import export_of, requests_of

COUNTED = {"warmup": "0s", "requests": 20, "repetitions": 1}
JSON = {"encoding": "json", "inputs": {"i": {"value": [2.5]}}}


@pytest.mark.parametrize(
    ("datatype", "raw", "value"),
    [
        ("INT32", struct.pack("<i", -7), -7),
        ("UINT64", struct.pack("<2Q", 2**64 - 1, 0), [2**64 - 1, 0]),
        ("BOOL", b"\x01\x00", [True, False]),
        ("BOOL", b"\x01", True),
        ("FP32", struct.pack("<f", 0.1), 0.10000000149011612),
        ("FP64", struct.pack("<2d", 0.1, -2.0), [0.1, -2.0]),
        ("FP32", struct.pack("<2f", float("nan"), 1.0), [None, 1.0]),
        ("FP32", struct.pack("<f", float("inf")), None),
        ("FP16", b"\x00\x3c", None),
        ("BF16", b"\x80\x3f", None),
        ("BYTES", b"\x02\x00\x00\x00ab", "ab"),
        ("BYTES", b"\x02\x00\x00\x00ab\x01\x00\x00\x00c", "ab\x01\x00\x00\x00c"),
        ("BYTES", b"\x04\x00\x00\x00a\xffz\xc3", "a\ufffdz\ufffd"),
        ("BYTES", b"\x00\x00\x00\x00", ""),
        ("BYTES", b"", ""),
        ("INT8", b"", ""),
    ],
)
def test_values(datatype, raw, value):
    found = exported_value(Tensor("x", Datatype(datatype), (1,), raw))
    assert (found, type(found)) == (value, type(value))


def test_a_run_is_exported_whole_without_its_failures(tmp_path):
    numbers = itertools.count(1)

    class Failing(v2_handler(lambda _: None)):  # type: ignore[misc]  # the base is made by a call
        def do_POST(self):
            if next(numbers) != 8:  # the probe is the first, so this is one of the load
                super().do_POST()
            else:
                self.body()
                self.answer(503, {"error": "busy"})

    before_ns = time.time_ns()
    with serving(Failing) as port:
        target = {"url": f"http://127.0.0.1:{port}", "model": "m"}
        scenarios = [
            {"target": target, "workload": JSON, "load": {"closed": {"concurrency": number}}, "measure": COUNTED} for number in (1, 2)
        ]
        document = export_of(tmp_path, *scenarios)
    after_ns = time.time_ns()
    assert list(document) == ["experiments", "version", "service_kind", "endpoint"]
    assert (document["version"], document["service_kind"], document["endpoint"]) == ("2.60.0", "triton", "")
    first, second = document["experiments"]
    assert list(first) == ["experiment", "requests", "window_boundaries"]
    assert [first["experiment"], second["experiment"]] == [{"mode": "concurrency", "value": 1}, {"mode": "concurrency", "value": 2}]
    assert (len(first["requests"]), len(second["requests"])) == (19, 20)
    for experiment in document["experiments"]:
        start_ns, end_ns = experiment["window_boundaries"]
        assert before_ns < start_ns < end_ns < after_ns
        for request in experiment["requests"]:
            assert list(request) == ["timestamp", "request_inputs", "response_timestamps", "response_outputs"]
            assert (request["request_inputs"], request["response_outputs"]) == ({"i": 2.5}, [{"o": 1.0}])
            (answered_ns,) = request["response_timestamps"]
            assert start_ns <= request["timestamp"] < answered_ns <= end_ns
    assert "\n" not in (tmp_path / "export.json").read_text()


def test_repetitions_are_windows_of_their_own(tmp_path):
    with serving(v2_handler(lambda _: None)) as port:
        target = {"url": f"http://127.0.0.1:{port}", "model": "m"}
        measure = {**COUNTED, "repetitions": 2}
        scenario = {"target": target, "workload": JSON, "load": {"open": {"rate": 400}}, "measure": measure}
        document = export_of(tmp_path, scenario, mode="request_rate")
    (experiment,) = document["experiments"]
    boundaries = experiment["window_boundaries"]
    assert boundaries == sorted(boundaries)
    assert len(boundaries) == 4
    assert len(experiment["requests"]) == 40


def test_a_warm_up_is_left_out_and_inputs_are_those_of_each_request(tmp_path):
    sent = itertools.count()
    tensor = {"datatype": "FP32", "shape": [1]}

    class Echo(v2_handler(lambda _: None)):  # type: ignore[misc]  # the base is made by a call
        def do_POST(self):
            (value,) = json.loads(self.body())["inputs"][0]["data"]
            next(sent)
            self.answer(200, {"model_name": "m", "model_version": "1", "outputs": [{"name": "o", **tensor, "data": [value]}]})

    with serving(Echo) as port:
        scenario = {
            "target": {"url": f"http://127.0.0.1:{port}", "model": "m"},
            "workload": {"encoding": "json", "variants": 3},
            "load": {"closed": {"concurrency": 1, "think_time": "1ms"}},
            "measure": {**COUNTED, "warmup": "20ms"},
        }
        requests = requests_of(export_of(tmp_path, scenario))
    assert 3 < len(requests) < next(sent) - 1
    values = [request["request_inputs"]["i"] for request in requests]
    assert values[:-3] == values[3:]
    assert len(set(values)) == 3
    assert [request["response_outputs"] for request in requests] == [[{"o": value}] for value in values]


@pytest.mark.parametrize("load", [{"closed": {"concurrency": 2}}, {"open": {"rate": 500}}])
def test_steps_of_sequences_have_their_ids(tmp_path, load):
    ids: list[int] = []
    tensor = {"datatype": "FP32", "shape": [1]}

    class Handler(JsonHandler):
        def do_GET(self):
            inputs, outputs = [{"name": "i", **tensor}], [{"name": "o", **tensor}]
            self.answer(200, {"name": "m", "versions": ["1"], "platform": "x", "inputs": inputs, "outputs": outputs, "max_batch_size": 0})

        def do_POST(self):
            ids.append(json.loads(self.body())["parameters"]["sequence_id"])
            self.answer(200, {"model_name": "m", "model_version": "1", "outputs": [{"name": "o", **tensor, "data": [1.0]}]})

    with serving(Handler) as port:
        target = {"url": f"http://127.0.0.1:{port}", "model": "m"}
        scenario = {"target": target, "workload": JSON, "sequences": {"length": 2}, "load": load, "measure": COUNTED}
        requests = requests_of(export_of(tmp_path, scenario))
    assert len(requests) >= 20
    assert all(list(request)[1] == "sequence_id" for request in requests)
    assert {request["sequence_id"] for request in requests} <= set(ids)
    assert len({request["sequence_id"] for request in requests}) >= 10


def test_a_stream_has_all_responses_and_the_empty_final_one(tmp_path):
    scenario = {
        "target": {"model": "repeat_int32", "protocols": ["grpc"]},
        "workload": {"inputs": {"IN": {"value": [7, 5]}, "DELAY": {"value": [1, 1]}, "WAIT": {"value": [0]}}},
        "stream": {"requests_per_stream": 3},
        "load": {"closed": {"concurrency": 2}},
        "measure": {**COUNTED, "requests": 8},
    }
    requests = requests_of(export_of(tmp_path, scenario))
    assert len(requests) == 8
    for request in requests:
        assert request["request_inputs"] == {"IN": [7, 5], "DELAY": [1, 1], "WAIT": 0}
        assert request["response_outputs"] == [{"OUT": 7, "IDX": 0}, {"OUT": 5, "IDX": 1}, {"OUT": "", "IDX": ""}]
        instants = [request["timestamp"], *request["response_timestamps"]]
        assert instants == sorted(instants)
        assert len(instants) == 4


def test_a_path_that_exists_is_refused_in_perf_analyzers_words(tmp_path):
    (tmp_path / "there.json").write_text("mine")
    with pytest.raises(UsageError, match=r"^Failed to parse --profile-export-file. Path must not already exist.$"):
        ExportFile(tmp_path / "there.json", "2.60.0")
    assert (tmp_path / "there.json").read_text() == "mine"
    with pytest.raises(UsageError, match=r"--profile-export-file .*/none/e.json: cannot be written: No such file or directory"):
        ExportFile(tmp_path / "none" / "e.json", "2.60.0")


def test_an_export_that_fails_leaves_no_file(tmp_path):
    def fail():
        with ExportFile(tmp_path / "e.json", "2.60.0") as export, ReplySpool(tmp_path) as spool:
            export.add("request_rate", 0.0, spool)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_ends_the_run_with_a_sentence(tmp_path, monkeypatch):
    full = tmp_path / "full"
    full.symlink_to("/dev/full")
    monkeypatch.setattr("tempfile.mkstemp", lambda **_: (os.open(os.devnull, os.O_RDONLY), str(full)))
    with serving(v2_handler(lambda _: None)) as port:
        target = {"url": f"http://127.0.0.1:{port}", "model": "m"}
        scenario = {"target": target, "workload": JSON, "load": {"closed": {"concurrency": 1}}, "measure": COUNTED}
        with pytest.raises(StorageError, match="the requests cannot be written: No space left on device"):
            export_of(tmp_path, scenario)
    assert not (tmp_path / "export.json").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"measure": {"workers": 2}}, "measure.workers: a profile export needs 1, found 2"),
        ({"load": {"cold_start": {"requests": 40}}}, "load.cold_start: a profile export lists the requests of a window"),
    ],
)
def test_what_cannot_be_exported_is_refused(tmp_path, changes, message):
    scenario = {"target": {"url": "http://127.0.0.1:1", "model": "m"}, "load": {"closed": {"concurrency": 2}}, **changes}
    with pytest.raises(UsageError, match=message):
        export_of(tmp_path, scenario)


def test_the_windows_of_one_run_have_boundaries_of_their_own(tmp_path):
    class Spool:
        def windows_ns(self):
            return [(100, 400), (400, 700), (1000, 1100)]

        def requests(self):
            yield SpooledRequest(110, 0, 0, InferRequest("m", (), ()), ((120, None),))

    path = tmp_path / "export.json"
    with ExportFile(path, "2.60.0") as export:
        export.add("concurrency", 1, Spool(), window_ns=100)  # type: ignore[arg-type]  # nothing else of it is used
    (experiment,) = json.loads(path.read_text())["experiments"]
    assert experiment["window_boundaries"] == [100, 200, 300, 400, 500, 600, 700, 1000, 1100]


def test_a_load_without_requests_is_left_out(tmp_path):
    with ExportFile(tmp_path / "e.json", "2.60.0") as export, ReplySpool(tmp_path) as spool:
        export.add("concurrency", 1, spool)
    assert json.loads((tmp_path / "e.json").read_text())["experiments"] == []


def test_what_has_the_path_at_the_end_stays_and_so_does_the_export(tmp_path):
    path = tmp_path / "e.json"
    with (
        pytest.raises(StorageError, match=r"e\.json: something else has this path by now; see (.*)$") as raised,
        ExportFile(path, "2.60.0"),
    ):
        path.write_text("mine")
    assert path.read_text() == "mine"
    assert json.loads(pathlib.Path(str(raised.value).rpartition("see ")[2]).read_text())["experiments"] == []


def test_an_answer_that_cannot_be_read_leaves_the_other_loads_whole(tmp_path):
    class Spool:
        def __init__(self, fails):
            self.fails = fails

        def windows_ns(self):
            return [(100, 400)]

        def requests(self):
            yield SpooledRequest(100, 0, 0, InferRequest("m", ()), ((200, None),))
            if self.fails:
                raise ProtocolError("not v2")

    path = tmp_path / "export.json"
    with ExportFile(path, "2.60.0") as export:
        export.add("concurrency", 1, Spool(fails=False))  # type: ignore[arg-type]  # nothing else of it is used
        with pytest.raises(ProtocolError):
            export.add("concurrency", 2, Spool(fails=True))  # type: ignore[arg-type]
        export.add("concurrency", 3, Spool(fails=False))  # type: ignore[arg-type]
    assert [one["experiment"]["value"] for one in json.loads(path.read_text())["experiments"]] == [1, 3]
