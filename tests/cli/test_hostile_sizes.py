"""Absurd sizes and numbers, from a server and from files: a sentence and the documented exit code, and nothing is allocated."""

import json
import resource

import pytest

from tests.hostile.v2_server import TENSOR, Described, grpc_server, http_server, statistics_document

FAST = {"load": {"closed": {"concurrency": 1, "think_time": "1ms"}}, "measure": {"warmup": "0s", "requests": 5, "repetitions": 1}}


@pytest.fixture
def run_against(perfkit, write_scenario):
    """Runs a scenario against a server that describes itself in this way."""

    def run(described, *, serve=http_server, **sections):
        with serve(described) as url:
            return perfkit.run("run", write_scenario(target={"url": url, "model": "m"}, **{**FAST, **sections}))

    return run


@pytest.mark.parametrize("serve", [http_server, grpc_server])
@pytest.mark.parametrize("datatype", ["FP32", "BYTES"])
def test_tensors_that_the_servers_metadata_makes_enormous_are_never_made(run_against, serve, datatype):
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    finished = run_against(Described(inputs=[{**TENSOR, "datatype": datatype, "shape": [10**12]}]), serve=serve)
    assert finished.code == 2
    assert f"workload.inputs.x: shape [1000000000000] of {datatype} is 1,000,000,000,000 values" in finished.stderr
    assert "× 16 requests" in finished.stderr
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 100 * 1024


@pytest.mark.parametrize("side", ["inputs", "outputs"])
def test_a_dimension_of_10_to_the_30_in_metadata_is_the_targets_fault(run_against, side):
    tensors = [{**TENSOR, "shape": [10**30]}]
    finished = run_against(Described(inputs=tensors) if side == "inputs" else Described(outputs=tensors))
    assert finished.code == 6
    assert "the server's model metadata is not v2: Unable to parse 'shape': expected 64-bit dimensions" in finished.stderr


def test_a_dimension_of_10_to_the_30_in_a_scenario_is_an_error_of_usage(run_against):
    inputs = {"x": {"generate": "zeros", "shape": [10**30]}}
    finished = run_against(Described(inputs=[{**TENSOR, "shape": [-1]}]), workload={"inputs": inputs})
    assert finished.code == 2
    assert "workload.inputs.x.shape[0]: input should be less than 9223372036854775808" in finished.stderr


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda _: statistics_document(92 * 10**40), "inference_stats.success.count is 92000"),
        (lambda reading: statistics_document(reading, ns=-1), "inference_stats.success.ns is -1"),
        (lambda reading: statistics_document(reading, failed=float("nan")), "inference_stats.fail.count is nan"),
        (lambda _: statistics_document("many"), "inference_stats.success.count is many"),
    ],
    ids=["9.2e41", "negative", "NaN", "text"],
)
def test_absurd_statistics_leave_the_servers_figures_out_and_a_warning_names_the_field(run_against, make, field):
    # the readings before the load are sound
    finished = run_against(Described(statistics=lambda reading: make(reading) if reading > 6 else statistics_document(1)))

    def refuse(constant):
        raise AssertionError(constant)

    document = json.loads((finished.folder / "result.json").read_text(), parse_constant=refuse)
    (point,) = document["points"]
    assert (point["requests"]["ok"], point["server"]) == (5, None)
    (message,) = [warning["message"] for warning in point["warnings"] if warning["code"] == "server_statistics"]
    assert field in message


def test_statistics_that_fall_leave_the_servers_figures_out(run_against):
    finished = run_against(Described(statistics=lambda reading: statistics_document(1000 if reading < 5 else 3)))
    (point,) = finished.result["points"]
    assert point["server"] is None
    assert {warning["code"] for warning in point["warnings"]} & {"server_counters_reset", "server_replicas"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n".join(["a0: &a0 [1, 1]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60))]), "more than 250,000 values"),
        ("name: x\n" + "# a comment of a line\n" * 400_000, "a scenario has at most 8.00 MiB"),
        ("target: {model: m}\nload: {closed: {concurrency: 1}}\nmeasure: {repetitions: 1000000}\n", "1,000,000 load points"),
    ],
    ids=["aliases", "size", "repetitions"],
)
def test_a_scenario_that_would_expand_without_limit_is_refused(perfkit, tmp_path, text, message):
    (tmp_path / "s.yaml").write_text(text)
    finished = perfkit.run("validate", tmp_path / "s.yaml")
    assert finished.code == 2
    assert message in finished.stderr


def test_a_scenario_that_never_ends_is_refused(perfkit):
    finished = perfkit.run("validate", "/dev/zero")
    assert finished.code == 2
    assert "/dev/zero: " in finished.stderr
