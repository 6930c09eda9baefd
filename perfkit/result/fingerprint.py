"""What two results must have in common for their figures to be compared, and what differs between them. Pure."""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from perfkit.result.model import Result

# of a scenario: what names or reaches a server rather than says what it is asked, and what only adds or judges data
_LEFT_OUT = {
    "schema": None,
    "slo": None,
    "gate": None,
    "target": {"url": None, "protocols": None, "headers": None, "tls": None, "metrics_url": None},
    "server": {"synthetic": None},
    "workload": {"seed": None},
    "measure": {"repetitions": None},
}
_GPU_FACTS = ("name", "mig_mode", "power_limit_w", "driver", "cuda")
_SAMPLED_GPU_FACTS = ("name", "mig", "driver_version", "memory_total_bytes")
# the fingerprint's keys as people read them
TITLES = {
    "scenario": "the scenario",
    "protocols": "the protocols and load points' kind",
    "transport": "the transport",
    "payload": "the requests' payload",
    "model": "the model",
    "model_config": "the model's configuration",
    "server_resources": "the bundled server's device, threads or CPUs",
    "gpus": "the GPUs (name, number, MIG mode, power limit, driver, CUDA)",
    "cpu_model": "the CPU model",
    "cpus": "the number of CPUs",
    "cpu_quota": "the CPU quota",
    "affinity": "the CPUs that may be used",
    "numa_nodes": "the NUMA nodes",
    "machine": "the machine's architecture",
    "kernel": "the kernel",
    "perfkit": "perfkit's major version",
    "metric_definitions": "the definitions of the metrics",
}

Severity = Literal["incomparable", "warning"]


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """One thing that two results do not share; the values are as their files have them, None where a file says nothing."""

    key: str
    title: str
    baseline: Any
    candidate: Any
    severity: Severity

    @property
    def sentence(self) -> str:
        """What differs, in words."""
        if self.key == "build":
            return f"{self.title}: {_shown(self.baseline)}"
        return f"{self.title} differs: {_shown(self.baseline)} against {_shown(self.candidate)}"


def canonical_scenario(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """Of a result's scenario, what decides what was measured: without names of servers, secrets, seeds, repetitions and limits."""
    return _without(scenario, _LEFT_OUT)


def fingerprint(result: Result) -> dict[str, Any]:
    """What must match between results whose figures are compared, as JSON values by the keys of `TITLES`.

    Scenario and payload stand as SHA-256 digests. What a result does not say is None, and differs from what another says.
    """
    environment = result.environment
    host, target = _mapping(environment.get("generator")), _mapping(environment.get("target"))
    by_protocol = {name: _mapping(one) for name, one in sorted(_mapping(target.get("protocols")).items())}
    wanted, server = _mapping(result.scenario.get("target")), _mapping(target.get("bundled_server"))
    return {
        "scenario": _digest(canonical_scenario(result.scenario)),
        "protocols": sorted({f"{point.protocol}, {point.load.kind}" for point in result.summary}),
        "transport": {name: [target.get("engine"), one.get("path"), one.get("tls")] for name, one in by_protocol.items()} or None,
        "payload": {name: one.get("payload_sha256") for name, one in by_protocol.items()} or None,
        "model": [wanted.get("model"), wanted.get("version")],
        "model_config": {name: one.get("model_config_sha256") for name, one in by_protocol.items()} or None,
        "server_resources": {name: server.get(name) for name in ("device", "threads", "cpus")} if server else None,
        "gpus": gpus_of(result),
        **{name: host.get(name) for name in ("cpu_model", "cpus", "cpu_quota", "numa_nodes", "machine", "kernel")},
        "affinity": host.get("usable_cpus"),
        "perfkit": _major(host.get("perfkit")),
        "metric_definitions": environment.get("metric_definitions"),
    }


def gpus_of(result: Result) -> list[dict[str, Any]]:
    """What of each of its GPUs must match; see `gpu_facts`."""
    return gpu_facts(result.environment, [gpu for point in result.summary for gpu in point.model_dump(mode="json")["gpus"]])


def gpu_facts(environment: Mapping[str, Any], sampled: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What of each GPU must match: as the environment describes them, otherwise as they were sampled at the load points."""
    if described := environment.get("gpus"):
        return [{name: gpu.get(name) for name in _GPU_FACTS} for gpu in map(_mapping, described)]
    by_uuid = {gpu.get("uuid"): {name: gpu.get(name) for name in _SAMPLED_GPU_FACTS} for gpu in sampled}
    return sorted(by_uuid.values(), key=lambda gpu: json.dumps(gpu, sort_keys=True))


def build_of(result: Result) -> str:
    """The build of the server under test, as `PERFKIT_SERVER_BUILD` said it during the run; empty where nobody did."""
    return str(_mapping(result.environment.get("target")).get("build") or "")


def host_of(result: Result) -> str:
    """The id of the machine that measured; empty where the result does not say."""
    return str(_mapping(result.environment.get("generator")).get("host_id") or "")


def commit_of(result: Result) -> str:
    """The commit of the result; empty where the result does not say."""
    return str(_mapping(result.environment.get("source")).get("commit") or "")


def fingerprint_differences(baseline: Mapping[str, Any], candidate: Mapping[str, Any]) -> list[Difference]:
    """Where two fingerprints do not match: each makes the results incomparable."""
    keys = (*TITLES, *(key for key in (*baseline, *candidate) if key not in TITLES))
    return [
        Difference(key, TITLES.get(key, key), baseline.get(key), candidate.get(key), "incomparable")
        for key in dict.fromkeys(keys)
        if baseline.get(key) != candidate.get(key)
    ]


def same_build(baseline: str, candidate: str) -> list[Difference]:
    """The builds must differ: where both sides name the same, there is nothing to compare."""
    if baseline and baseline == candidate:
        return [Difference("build", "both sides measured the same build of the server", baseline, candidate, "incomparable")]
    return []


def scenario_differences(baseline: Mapping[str, Any], candidate: Mapping[str, Any]) -> list[Difference]:
    """The keys in which two scenarios differ, as dotted paths; those that do not matter for the figures are warnings."""
    matters = {**dict(_flat(canonical_scenario(baseline))), **dict(_flat(canonical_scenario(candidate)))}
    left, right = dict(_flat(baseline)), dict(_flat(candidate))
    return [
        Difference(f"scenario.{key}", f"scenario {key}", left.get(key), right.get(key), "incomparable" if key in matters else "warning")
        for key in dict.fromkeys((*left, *right))
        if left.get(key) != right.get(key)
    ]


def environment_differences(baseline: Result, candidate: Result) -> list[Difference]:
    """The facts in which two environments differ, as dotted paths; those that no fingerprint holds are warnings."""
    left, right = (dict(_flat(_without(one.environment, _PASSING))) for one in (baseline, candidate))
    return [
        Difference(
            key, key, left.get(key), right.get(key), "incomparable" if key in _FINGERPRINTED or key.startswith("gpus") else "warning"
        )
        for key in dict.fromkeys((*left, *right))
        if left.get(key) != right.get(key)
    ]


# what changes from one start of a server to the next, and a calibration's figures, say nothing of the environment
_PASSING = {
    "generator": {"calibration": None},
    "target": {"url": None, "bundled_server": dict.fromkeys(("http_port", "grpc_port", "metrics_port", "pid", "event"))},
}
_FINGERPRINTED = {
    "metric_definitions", "target.engine", "generator.usable_cpus",
    *(f"generator.{name}" for name in ("cpu_model", "cpus", "cpu_quota", "numa_nodes", "machine", "kernel")),
    *(f"target.bundled_server.{name}" for name in ("device", "threads", "cpus")),
    *(f"target.protocols.{protocol}.{name}" for protocol in ("http", "grpc") for name in ("path", "tls", "payload_sha256", "model_config_sha256")),
}  # fmt: skip


def _without(document: Mapping[str, Any], left_out: Mapping[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in document.items():
        rest = left_out.get(key, ())
        if rest is not None:
            kept[key] = _without(value, rest) if rest and isinstance(value, Mapping) else value
    return kept


def _flat(document: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _major(version: object) -> str | None:
    """Of a version its major number; below 1.0 the minor one too, which may change anything."""
    if not isinstance(version, str):
        return None
    first, _, rest = version.partition(".")
    return f"0.{rest.partition('.')[0]}" if first == "0" else first


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _shown(value: object) -> str:
    if value is None or value == "":
        return "not said"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_shown(one)}" for key, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value)) or "none"
    text = str(value)
    return text[:12] + "…" if len(text) == 64 and all(character in "0123456789abcdef" for character in text) else text
