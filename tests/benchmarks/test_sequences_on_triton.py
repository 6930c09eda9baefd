"""Sequences of a real Triton, if it is installed: ids that its control inputs hold, and steps on streams."""

import numpy as np
import pytest


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_control_input_of_32_bits_gets_every_id_whole(triton, measure, protocol, workers):
    triton.load("sequence_short_ids")
    (point,) = measure(
        {
            "target": {"url": triton.url(protocol), "model": "sequence_short_ids"},
            "sequences": {"length": 3},
            "load": {"closed": {"concurrency": [4]}},
            "measure": {"warmup": "0s", "requests": 60, "repetitions": 1, "workers": workers},
        }
    )
    assert (point["requests"]["ok"], point["requests"]["rejected"]) == (60, 0)


@pytest.mark.parametrize("stream", [{}, {"requests_per_stream": 3}, {"requests_per_stream": 1000, "in_flight": 2}], ids=str)
def test_the_steps_of_a_sequence_need_not_share_a_stream(triton, measure, tmp_path, stream):
    """Triton finds a sequence by its id: each step has its number and sum, also where every step has a stream of its own."""
    files = dict[str, list[str]](values=[], sums=[])
    for step in range(1, 5):
        for name, value in (("values", step), ("sums", step * (step + 1) // 2)):
            files[name].append(str(tmp_path / f"{name}-{step}.npy"))
            np.save(files[name][-1], np.array([[value]], np.int64))
    values, sums = {"file": files["values"]}, {"file": files["sums"]}
    triton.load("sequence_sum")
    (point,) = measure(
        {
            "target": {"url": triton.url("grpc"), "model": "sequence_sum"},
            "workload": {"inputs": {"INPUT": values}},
            "sequences": {"length": 4},
            "stream": stream,
            "check": {"share": 1, "at_most": 1_000_000, "outputs": {"STEP": values, "SUM": sums}},
            "load": {"closed": {"concurrency": [6]}},
            "measure": {"warmup": "0s", "requests": 120, "repetitions": 1},
        }
    )
    assert (point["requests"]["ok"], point["requests"]["invalid_output"]) == (120, 0)
    assert point["checked"] > 0  # answers of one read are at one instant, and the first of them is checked
    assert point["sequences"]["failed"] == 0
