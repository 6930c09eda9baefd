"""Mode `triton`: files that Triton's own tools and perfkit can read."""

import json

from tests.server_stub.tracing.collector import SIMPLE, post


def by_id(path):
    found: dict[int, dict[str, object]] = {}
    for entry in json.loads(path.read_text(encoding="utf-8")):
        about = found.setdefault(entry["id"], {"names": []})
        about["names"] += [stamp["name"] for stamp in entry.get("timestamps", ())]  # type: ignore[operator]  # a list
        about |= {key: value for key, value in entry.items() if key not in ("id", "timestamps")}
    return found


def test_traces_are_written_at_the_end_and_every_so_often(start_server, tmp_path):
    file = tmp_path / "trace.json"
    pairs = (f"triton,file={file}", "level=TIMESTAMPS", "rate=1", "triton,log-frequency=2")
    with start_server("--device=cpu", "--model", "simple", *(f"--trace-config={pair}" for pair in pairs)) as server:
        for _ in range(3):
            assert post(server.http_port, "v2/models/simple/infer", SIMPLE)[0] == 200
    first, second = by_id(tmp_path / "trace.json.0"), by_id(tmp_path / "trace.json.1")
    assert ([*first], [*second]) == ([1, 2], [3])
    # the names that Triton 2.51 writes
    names = {
        "HTTP_RECV_START", "HTTP_RECV_END", "REQUEST_START", "QUEUE_START", "INFER_RESPONSE_COMPLETE", "HTTP_SEND_START", "HTTP_SEND_END",
        "COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END", "REQUEST_END",
    }  # fmt: skip
    for trace in (*first.values(), *second.values()):
        assert set(trace.pop("names")) == names
        assert trace == {"model_name": "simple", "model_version": 1, "request_id": "req-1"}


def test_a_file_that_cannot_be_written_is_refused(start_server, tmp_path):
    server = start_server(f"--trace-config=triton,file={tmp_path}/nowhere/t.json", "--trace-config=level=TIMESTAMPS")
    code, _, stderr = server.end()
    assert code == 2
    assert "nowhere/t.json cannot be written: No such file or directory" in stderr
