"""What must match between results: each fact alone makes them incomparable; what may differ does not."""

import pytest

from perfkit.result.fingerprint import (
    TITLES,
    environment_differences,
    fingerprint,
    fingerprint_differences,
    gpu_facts,
    model_config_difference,
    same_build,
    scenario_differences,
    server_cold_start_s,
)
from perfkit.result.model import Result
from tests.stored_results import SHA, changed, document

OTHER_SHA = SHA[::-1]
HOST, TARGET = "environment.generator", "environment.target"
# a place in result.json, another value there, and the fingerprint's key that must tell
MUTATIONS = [
    ("scenario.name", "other", "scenario"),
    ("scenario.load.closed.concurrency", [4, 8], "scenario"),
    ("scenario.load.closed.think_time", "1ms", "scenario"),
    ("scenario.measure.duration", "20s", "scenario"),
    ("scenario.measure.warmup", "2s", "scenario"),
    ("scenario.workload.batch_size", 2, "scenario"),
    ("scenario.workload.variants", 1, "scenario"),
    ("scenario.target.timeout", "1s", "scenario"),
    ("scenario.server.device", "cuda", "scenario"),
    ("scenario.a_later_key", 1, "scenario"),
    ("summary.0.protocol", "grpc", "protocols"),
    ("summary.0.load", {"kind": "open", "rate_per_s": 4.0, "arrivals": "poisson"}, "protocols"),
    (f"{TARGET}.engine", "reference", "transport"),
    (f"{TARGET}.protocols.http.path", "network", "transport"),
    (f"{TARGET}.protocols.http.tls", True, "transport"),
    (f"{TARGET}.protocols.http.payload_sha256", OTHER_SHA, "payload"),
    (f"{TARGET}.protocols.http.payload_sha256", ..., "payload"),
    ("scenario.target.model", "other", "model"),
    ("scenario.target.version", "2", "model"),
    (f"{TARGET}.protocols.http.model_config_sha256", OTHER_SHA, "model_config"),
    (f"{TARGET}.bundled_server.device", "cuda", "server_resources"),
    (f"{TARGET}.bundled_server.threads", 2, "server_resources"),
    (f"{TARGET}.bundled_server.cpus", [1], "server_resources"),
    (f"{TARGET}.bundled_server", None, "server_resources"),
    ("environment.gpus.0.name", "other", "gpus"),
    ("environment.gpus.0.mig_mode", "enabled", "gpus"),
    ("environment.gpus.0.power_limit_w", 250, "gpus"),
    ("environment.gpus.0.driver", "560.1", "gpus"),
    ("environment.gpus.0.cuda", "12.6", "gpus"),
    ("environment.gpus", [], "gpus"),
    ("environment.gpus", ..., "gpus"),
    (f"{HOST}.cpu_model", "Another CPU", "cpu_model"),
    (f"{HOST}.cpus", 16, "cpus"),
    (f"{HOST}.cpu_quota", None, "cpu_quota"),
    (f"{HOST}.cpu_quota", 2.0, "cpu_quota"),
    (f"{HOST}.usable_cpus", [0, 1], "affinity"),
    (f"{HOST}.numa_nodes", 2, "numa_nodes"),
    (f"{HOST}.machine", "aarch64", "machine"),
    (f"{HOST}.kernel", "6.1.1", "kernel"),
    (f"{HOST}.kernel", ..., "kernel"),
    (f"{HOST}.perfkit", "2.0.0", "perfkit"),
    ("environment.metric_definitions", 99, "metric_definitions"),
]
# what a server, a secret, a seed or the moment decide, and what only adds data or judges them
MAY_DIFFER = [
    ("scenario.target.url", "http://10.0.0.7:9000"),
    ("scenario.target.headers", {"authorization": "<redacted>"}),
    ("scenario.target.secrets", {"TOKEN": {"file": "token", "every": "1m"}}),
    ("scenario.workload.seed", 7),
    ("scenario.measure.repetitions", 10),
    ("scenario.measure.until_decided", True),
    ("scenario.slo", {"p99": "50ms"}),
    ("scenario.gate", {"metrics": ["p99"]}),
    ("scenario.server.synthetic", "service=constant:6ms"),
    ("environment.gpus.0.clock_mhz", 900),
    (f"{HOST}.python", "3.12.0"),
    (f"{HOST}.perfkit", "1.9.0"),
    (f"{HOST}.host_id", "host-b"),
    (f"{TARGET}.version", "2.1"),
    (f"{TARGET}.url", "http://127.0.0.1:9000"),
    (f"{TARGET}.bundled_server.pid", 18),
    (f"{TARGET}.bundled_server.ready_after_s", 1.5),
    ("environment.source.commit", "beef"),
]


def of(changed_document):
    return fingerprint(Result.model_validate(changed_document))


@pytest.mark.parametrize(("path", "value", "key"), MUTATIONS)
def test_each_fact_that_must_match_is_a_difference_of_its_own(path, value, key):
    found = fingerprint_differences(of(document()), of(changed(document(), path, value)))
    assert key in {one.key for one in found}
    assert all(one.severity == "incomparable" for one in found)
    assert {one.key for one in found} <= {key, "scenario", "model"}  # the model's name stands in the scenario as well


@pytest.mark.parametrize(("path", "value"), MAY_DIFFER)
def test_facts_of_the_moment_may_differ(path, value):
    assert fingerprint_differences(of(document()), of(changed(document(), path, value))) == []


def test_every_key_of_the_fingerprint_has_a_mutation_and_a_title():
    assert {key for _, _, key in MUTATIONS} == set(of(document())) == set(TITLES)


@pytest.mark.parametrize(
    ("version", "other", "same"), [("0.1.0", "0.1.9", True), ("0.1.0", "0.2.0", False), ("1.0.0", "1.9.1", True), ("1.9", "2.0", False)]
)
def test_perfkits_major_version_must_match_and_below_one_the_minor_too(version, other, same):
    left, right = (of(changed(document(), f"{HOST}.perfkit", one)) for one in (version, other))
    assert (fingerprint_differences(left, right) == []) is same


def test_an_unknown_fact_differs_from_a_known_one_and_not_from_another_unknown_one():
    silent = changed(document(), "environment", {})
    assert fingerprint_differences(of(silent), of(silent)) == []
    assert "cpu_model" in {one.key for one in fingerprint_differences(of(document()), of(silent))}


def test_sentences_name_what_differs_and_show_no_digests():
    (found,) = fingerprint_differences(of(document()), of(changed(document(), f"{HOST}.kernel", "6.2.0")))
    assert found.sentence == "the kernel differs: 6.1.0 against 6.2.0"
    (found,) = fingerprint_differences(of(document()), of(changed(document(), f"{TARGET}.protocols.http.payload_sha256", OTHER_SHA)))
    assert found.sentence == "the requests' payload differs"


def test_the_keys_of_the_models_configuration_that_differ_are_named_with_values_that_are_no_digests():
    def of_config(**keys):
        return Result.model_validate(changed(document(), f"{TARGET}.protocols.http.model_config", keys))

    old = {
        "max_batch_size": "8",
        "dynamic_batching.max_queue_delay_microseconds": "100",
        "parameters.key": "digest 0123",
        "input.0.dims": "[3]",
    }
    new = {**old, "max_batch_size": "16", "parameters.key": "digest 4567", "instance_group.0.count": "2"}
    assert model_config_difference(of_config(**old), of_config(**new)) == (
        "the model's configuration differs: instance_group.0.count none against 2, max_batch_size 8 against 16, parameters.key"
    )
    assert model_config_difference(of_config(**old), of_config(**old)) == ""
    assert model_config_difference(of_config(**old), Result.model_validate(document())) == "", "a server need not report a configuration"
    many = {f"k{number}": "1" for number in range(9)}
    assert model_config_difference(of_config(), of_config(**many)) == ""
    assert model_config_difference(of_config(k0="0"), of_config(**many)).endswith("k4 none against 1, and 4 more keys")


def test_sampled_gpus_count_once_each_without_their_state():
    gpu = {"uuid": "GPU-1", "name": "A", "mig": False, "driver_version": "550", "memory_total_bytes": 2**36, "power_mean_w": 300.0}
    twice = gpu_facts({}, [gpu, {**gpu, "power_mean_w": 250.0}, {**gpu, "uuid": "GPU-2"}])
    assert twice == [{"name": "A", "mig": False, "driver_version": "550", "memory_total_bytes": 2**36}] * 2
    assert twice != gpu_facts({}, [gpu])
    assert twice != gpu_facts({}, [gpu, {**gpu, "uuid": "GPU-2", "driver_version": "560"}])


def test_two_known_builds_must_differ():
    assert [one.sentence for one in same_build("b1", "b1")] == ["both sides measured the same build of the server: b1"]
    assert same_build("b1", "b2") == same_build("", "") == same_build("b1", "") == []


def test_scenario_differences_have_dotted_keys_and_severities():
    changed_load = changed(changed(document(), "scenario.load.closed.concurrency", [8]), "scenario.workload.seed", 5)
    found = {one.key: one.severity for one in scenario_differences(document()["scenario"], changed_load["scenario"])}
    assert found == {"scenario.load.closed.concurrency": "incomparable", "scenario.workload.seed": "warning"}


def test_other_environment_differences_are_warnings_and_transient_facts_are_left_out():
    other = changed(changed(changed(document(), f"{HOST}.python", "3.12.0"), f"{HOST}.kernel", "7"), f"{TARGET}.bundled_server.pid", 99)
    other = changed(other, f"{TARGET}.bundled_server.ready_after_s", 1.5)
    found = {one.key: one.severity for one in environment_differences(*(Result.model_validate(one) for one in (document(), other)))}
    assert found == {"generator.python": "warning", "generator.kernel": "incomparable"}


def test_what_the_server_chose_is_compared_but_not_how_long_it_took_or_how_much_it_held():
    def started(load_s, size_bytes, instances):
        models = {"densenet*": {"instances": instances, "load_s": load_s, "gpu_memory_bytes": size_bytes}}
        return Result.model_validate(changed(document(), f"{TARGET}.bundled_server.onnx", {"provider": "cuda", "models": models}))

    first = started(8.1, 5_500_000_000, 3)
    assert environment_differences(first, started(7.9, 5_400_000_000, 3)) == []
    (found,) = environment_differences(first, started(7.9, 5_400_000_000, 2))
    assert (found.key, found.severity) == ("target.bundled_server.onnx.models.densenet*.instances", "warning")


def test_two_builds_that_commands_start_are_comparable():
    old, new = (
        changed(
            changed(document(), "scenario.target.command", f"./server-{build} --port {{port}}"),
            f"{TARGET}.command_server",
            {"ready_after_s": 3.5},
        )
        for build in ("1.4", "1.5")
    )
    assert fingerprint(Result.model_validate(old)) == fingerprint(Result.model_validate(new))
    assert {one.severity for one in scenario_differences(old["scenario"], new["scenario"])} == {"warning"}
    new = changed(new, f"{TARGET}.command_server", {"ready_after_s": 9.5})
    assert list(environment_differences(*(Result.model_validate(one) for one in (old, new)))) == []
    assert server_cold_start_s(Result.model_validate(new)) == 9.5


@pytest.mark.parametrize(
    ("stored", "found"), [(1.5, 1.5), (2, 2.0), (0, None), (-1, None), (1e9, None), (True, None), ("1", None), (..., None)]
)
def test_the_cold_start_of_the_bundled_server_is_a_plausible_time_or_unknown(stored, found):
    other = changed(document(), f"{TARGET}.bundled_server.ready_after_s", 1.5)
    assert server_cold_start_s(Result.model_validate(changed(other, f"{TARGET}.bundled_server.ready_after_s", stored))) == found
    assert server_cold_start_s(Result.model_validate(changed(document(), f"{TARGET}.bundled_server", None))) is None
