"""Classification: rows C1 to C3 of the conformance checklist."""

import json

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http


@pytest.fixture(scope="module")
def image():
    return np.random.Generator(np.random.Philox(1)).random((3, 224, 224), np.float32)


@pytest.fixture(params=["http", "grpc"])
def classify(request, image, triton_http, triton_grpc):
    """The top classes of an image from densenet_onnx, or with 0 the logits."""
    library, client = {"http": (tritonclient.http, triton_http), "grpc": (tritonclient.grpc, triton_grpc)}[request.param]

    def ask(class_count):
        given = library.InferInput("data_0", [3, 224, 224], "FP32")
        given.set_data_from_numpy(image)
        asked = library.InferRequestedOutput("fc6_1", class_count=class_count)
        return client.infer("densenet_onnx", [given], outputs=[asked]).as_numpy("fc6_1")

    return ask


def test_C1_the_top_classes_come_highest_first_with_labels(classify):
    logits, top = classify(0), classify(3)
    assert (logits.shape, top.shape) == ((1000,), (3,))
    best = np.argsort(logits)[::-1][:3]
    assert [text.decode() for text in top] == [f"{logits[index]:.6f}:{index}:CLASS {index}" for index in best]


def test_C2_at_most_all_classes_are_returned(classify):
    assert classify(1_000_000).shape == (1000,)


def test_C3_each_row_of_a_batch_has_its_classes(wire):
    values = [*range(16), *range(16, 0, -1)]
    document = {
        "inputs": [
            {"name": name, "datatype": "INT32", "shape": [2, 16], "data": data} for name, data in (("INPUT0", values), ("INPUT1", [0] * 32))
        ],
        "outputs": [{"name": "OUTPUT0", "parameters": {"classification": 2}}],
    }
    answer = wire.send("POST", "/v2/models/simple/infer", json.dumps(document).encode())
    assert answer.json["outputs"] == [{"name": "OUTPUT0", "datatype": "BYTES", "shape": [2, 2], "data": ["15:15", "14:14", "16:0", "15:1"]}]
