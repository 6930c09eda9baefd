"""The environment in words: whatever the server's ready line holds is shown, known or not."""

import pytest

from perfkit.report.environment import environment_groups

READY = {
    "event": "ready", "device": "cuda", "http_port": 40001, "ready_after_s": 12.3456,
    "onnx": {
        "provider": "cuda", "precision": "tf32", "layout": "nhwc", "graphs": True, "max_batch": 64, "another": {"depth": [2, "x"], "size_bytes": 2**21},
        "models": {
            "densenet_batch": {
                "instances": 3, "graphs": True, "batch_sizes": [1, 2, 3, 4, 5, 6, 7, 8, 10, 12], "load_s": 8.1, "gpu_memory_bytes": 5_500_000_000,
                "fallback": "no memory for a third instance", "unheard_of": None,
            },
            "add_sub": "as it is",
        },
    },
}  # fmt: skip


def groups(environment):
    return {title: dict(facts) for title, facts in environment_groups(environment)}


def test_what_the_server_chose_and_prepared_is_shown_for_each_model():
    found = groups({"target": {"name": "server_stub", "bundled_server": READY}})
    assert list(found) == ["Target", "Bundled server", "Execution of ONNX models", "Execution of densenet_batch", "Execution of add_sub"]
    assert found["Bundled server"] == {"device": "cuda", "http port": "40001", "ready after": "12.3 s"}
    assert found["Execution of ONNX models"] == {
        "provider": "cuda", "precision": "tf32", "layout": "nhwc", "graphs": "yes", "max batch": "64", "another": "depth 2, x, size 2.00 MiB",
    }  # fmt: skip
    assert found["Execution of densenet_batch"] == {
        "instances": "3", "graphs": "yes", "batch sizes": "1–8, 10, 12", "load": "8.10 s", "gpu memory": "5.12 GiB",
        "fallback": "no memory for a third instance", "unheard of": "–",
    }  # fmt: skip
    assert found["Execution of add_sub"] == {"description": "as it is"}


@pytest.mark.parametrize("onnx", [{"provider": "cpu"}, {"provider": "cpu", "models": {}}, {"provider": "cpu", "models": "none"}])
def test_a_server_without_models_of_choice_has_its_options_alone(onnx):
    found = groups({"target": {"bundled_server": {"device": "cpu", "onnx": onnx}}})
    assert found["Execution of ONNX models"]["provider"] == "cpu"
    assert list(found) == ["Target", "Bundled server", "Execution of ONNX models"]


def test_a_ready_line_of_another_form_is_shown_as_it_is():
    assert groups({"target": {"bundled_server": {"onnx": "later"}}})["Bundled server"] == {"onnx": "later"}
    assert groups({"target": {"bundled_server": "strange"}})["Bundled server"] == {"description": "strange"}


def test_nested_values_say_what_belongs_together():
    found = groups({"target": {"protocols": {"http": {"path": "loopback", "tls": False}, "grpc": {"path": "network", "tls": True}}}})
    assert found["Target"]["protocols"] == "http (path loopback, tls no), grpc (path network, tls yes)"
