"""The fingerprint of a result: the facts that two results must share for their figures to be comparable; and its hardware in words."""

import dataclasses
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from perfkit.figures.resources import IDLE_GPU_SHARE, GpuFigures
from perfkit.protocol.config_keys import DIGEST
from perfkit.result.json_file import as_list, as_mapping
from perfkit.result.model import Result

# keys of a scenario that do not affect what is measured: how the server is reached, the amount of data, and its judgement
_LEFT_OUT = {
    "schema": None,
    "slo": None,
    "gate": None,
    "target": {
        "url": None,
        "urls": None,
        "protocols": None,
        "command": None,
        "ready_within": None,
        "headers": None,
        "secrets": None,
        "tls": None,
        "metrics_url": None,
    },
    "server": {"synthetic": None, "onnx": None},
    "workload": {"seed": None},
    "measure": {"repetitions": None, "until_decided": None},
}
_GPU_FACTS = ("name", "mig_mode", "power_limit_w", "driver", "cuda")
_LONGEST_COLD_START_S = 3600
_SAMPLED_GPU_FACTS = ("name", "mig", "driver_version", "memory_total_bytes")
# the keys of a fingerprint in words
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

_DIGESTS = {"scenario", "payload", "model_config"}
"""The keys of a fingerprint that are digests, which say nothing to a reader."""
_MOST_NAMED = 5

Severity = Literal["incomparable", "warning"]


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """A fact that differs between two results; its values are as stored, None if missing."""

    key: str
    title: str
    baseline: Any
    candidate: Any
    severity: Severity
    """Whether figures stay comparable."""

    @property
    def sentence(self) -> str:
        """The difference in words."""
        if self.key == "build":
            return f"{self.title}: {_shown(self.baseline)}"
        if self.key in _DIGESTS:
            return f"{self.title} differs"
        return f"{self.title} differs: {_shown(self.baseline)} against {_shown(self.candidate)}"


def canonical_scenario(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a scenario that decides what is measured: without server addresses, secrets, seeds, repetitions and limits."""
    return _without(scenario, _LEFT_OUT)


def fingerprint(result: Result) -> dict[str, Any]:
    """The facts that must match for figures to be comparable, as JSON values by the keys of `TITLES`.

    Scenario and payload are SHA-256 digests. A fact that a result lacks is None, and differs from a known one.
    """
    environment, target = result.environment, as_mapping(result.environment.get("target"))
    by_protocol = {name: as_mapping(one) for name, one in sorted(as_mapping(target.get("protocols")).items())}
    wanted, server = as_mapping(result.scenario.get("target")), as_mapping(target.get("bundled_server"))
    return {
        "scenario": _digest(canonical_scenario(result.scenario)),
        "protocols": sorted({f"{point.protocol}, {point.load.kind}" for point in result.summary}),
        "transport": {name: [target.get("engine"), one.get("path"), one.get("tls")] for name, one in by_protocol.items()} or None,
        "payload": payload_digests(target),
        "model": [wanted.get("model"), wanted.get("version")],
        "model_config": {name: one.get("model_config_sha256") for name, one in by_protocol.items()} or None,
        "server_resources": {name: server.get(name) for name in ("device", "threads", "cpus")} if server else None,
        "gpus": gpus_of(result),
        **machine_facts(environment),
    }


def payload_digests(target: Mapping[str, Any]) -> dict[str, Any] | None:
    """The digest of the payload for each protocol, from the description of a target; None without any."""
    by_protocol = {name: as_mapping(one) for name, one in sorted(as_mapping(target.get("protocols")).items())}
    return {name: one.get("payload_sha256") for name, one in by_protocol.items()} or None


def machine_facts(environment: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a fingerprint that describes the load generator's machine and what measured there."""
    host = as_mapping(environment.get("generator"))
    return {
        **{name: host.get(name) for name in ("cpu_model", "cpus", "cpu_quota", "numa_nodes", "machine", "kernel")},
        "affinity": host.get("usable_cpus"),
        "perfkit": _major(host.get("perfkit")),
        "metric_definitions": environment.get("metric_definitions"),
    }


def gpus_of(result: Result) -> list[dict[str, Any]]:
    """The facts of each GPU that must match; see `gpu_facts`."""
    return gpu_facts(result.environment, [gpu for point in result.summary for gpu in point.model_dump(mode="json")["gpus"]])


def gpu_facts(environment: Mapping[str, Any], sampled: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The facts of each GPU that must match, from the description of the environment, otherwise from the samples."""
    if described := environment.get("gpus"):
        return [{name: gpu.get(name) for name in _GPU_FACTS} for gpu in map(as_mapping, described)]
    by_uuid = {gpu.get("uuid"): {name: gpu.get(name) for name in _SAMPLED_GPU_FACTS} for gpu in sampled}
    return sorted(by_uuid.values(), key=lambda gpu: json.dumps(gpu, sort_keys=True))


def build_of(result: Result) -> str:
    """The build of the server under test, from `PERFKIT_SERVER_BUILD` during the run; empty if unknown."""
    return str(as_mapping(result.environment.get("target")).get("build") or "")


def host_of(result: Result) -> str:
    """The id of the machine that ran the load generator; empty if unknown."""
    return str(as_mapping(result.environment.get("generator")).get("host_id") or "")


def starts_server(result: Result) -> bool:
    """Whether perfkit started the server under test for the run."""
    return bool(_started_server(result))


def _started_server(result: Result) -> Mapping[str, Any]:
    target = as_mapping(result.environment.get("target"))
    return as_mapping(target.get("command_server") or target.get("bundled_server"))


def server_cold_start_s(result: Result) -> float | None:
    """The time from the start of the server by perfkit until it was ready; None if it is unknown, or not between 0 and an hour."""
    found = _started_server(result).get("ready_after_s")
    if not isinstance(found, int | float) or isinstance(found, bool):
        return None
    return float(found) if 0 < found <= _LONGEST_COLD_START_S else None


def commit_of(result: Result) -> str:
    """The commit of the result; empty if unknown."""
    return str(as_mapping(result.environment.get("source")).get("commit") or "")


def fingerprint_differences(baseline: Mapping[str, Any], candidate: Mapping[str, Any]) -> list[Difference]:
    """The differences of two fingerprints, each of which makes the results incomparable."""
    keys = (*TITLES, *(key for key in (*baseline, *candidate) if key not in TITLES))
    return [
        Difference(key, TITLES.get(key, key), baseline.get(key), candidate.get(key), "incomparable")
        for key in dict.fromkeys(keys)
        if baseline.get(key) != candidate.get(key)
    ]


def model_config_difference(baseline: Result, candidate: Result) -> str:
    """The keys of the model's configuration that differ, in words; empty if the results do not have them, or if they are alike."""
    left, right = (_model_configs(one) for one in (baseline, candidate))
    changed = {
        key: (of_left.get(key), of_right.get(key))
        for protocol in left.keys() & right.keys()
        for of_left, of_right in [(left[protocol], right[protocol])]
        for key in sorted({*of_left, *of_right})
        if of_left.get(key) != of_right.get(key)
    }
    told = [
        key if any(str(value).startswith(DIGEST) for value in values) else f"{key} {_or_none(values[0])} against {_or_none(values[1])}"
        for key, values in changed.items()
    ]
    more = f", and {len(told) - _MOST_NAMED:,} more keys" if len(told) > _MOST_NAMED else ""
    return f"{TITLES['model_config']} differs: {', '.join(told[:_MOST_NAMED])}{more}" if told else ""


def _model_configs(result: Result) -> dict[str, Mapping[str, Any]]:
    """The stored keys of the model's configuration by protocol; only protocols that have some."""
    protocols = as_mapping(as_mapping(result.environment.get("target")).get("protocols"))
    found = {name: as_mapping(as_mapping(one).get("model_config")) for name, one in protocols.items()}
    return {name: keys for name, keys in found.items() if keys}


def _or_none(value: object) -> str:
    return "none" if value is None else str(value)


def same_build(baseline: str, candidate: str) -> list[Difference]:
    """A difference if both sides are the same build, so that there is nothing to compare."""
    if baseline and baseline == candidate:
        return [Difference("build", "both sides measured the same build of the server", baseline, candidate, "incomparable")]
    return []


def scenario_differences(baseline: Mapping[str, Any], candidate: Mapping[str, Any]) -> list[Difference]:
    """The differences of two scenarios by dotted key; those that do not affect the figures are warnings."""
    matters = {**dict(_flat(canonical_scenario(baseline))), **dict(_flat(canonical_scenario(candidate)))}
    left, right = dict(_flat(baseline)), dict(_flat(candidate))
    return [
        Difference(f"scenario.{key}", f"scenario {key}", left.get(key), right.get(key), "incomparable" if key in matters else "warning")
        for key in dict.fromkeys((*left, *right))
        if left.get(key) != right.get(key)
    ]


def environment_differences(baseline: Result, candidate: Result) -> list[Difference]:
    """The differences of two environments by dotted key; those outside the fingerprint are warnings."""
    left, right = (dict(_flat(_without(one.environment, _TRANSIENT))) for one in (baseline, candidate))
    return [
        Difference(
            key, key, left.get(key), right.get(key), "incomparable" if key in _FINGERPRINTED or key.startswith("gpus") else "warning"
        )
        for key in dict.fromkeys((*left, *right))
        if left.get(key) != right.get(key)
    ]


_ANY = "*"
"""Stands for each key of a mapping."""
# facts that change with every start of a server, and calibration figures, do not describe the environment
_TRANSIENT = {
    "generator": {"calibration": None},
    "target": {
        "url": None,
        "command_server": None,
        "bundled_server": {
            **dict.fromkeys(("http_port", "grpc_port", "metrics_port", "pid", "event", "ready_after_s")),
            "onnx": {"models": {_ANY: dict.fromkeys(("load_s", "gpu_memory_bytes"))}},
        },
    },
}
_FINGERPRINTED = {
    "metric_definitions", "target.engine", "generator.usable_cpus",
    *(f"generator.{name}" for name in ("cpu_model", "cpus", "cpu_quota", "numa_nodes", "machine", "kernel")),
    *(f"target.bundled_server.{name}" for name in ("device", "threads", "cpus")),
    *(f"target.protocols.{protocol}.{name}" for protocol in ("http", "grpc") for name in ("path", "tls", "payload_sha256", "model_config_sha256")),
}  # fmt: skip


def _without(document: Mapping[str, Any], left_out: Mapping[str, Any]) -> dict[str, Any]:
    remaining: dict[str, Any] = {}
    for key, value in document.items():
        rest = left_out.get(key, left_out.get(_ANY, ()))
        if rest is not None:
            remaining[key] = _without(value, rest) if rest and isinstance(value, Mapping) else value
    return remaining


def _flat(document: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _major(version: object) -> str | None:
    """The major number of a version; below 1.0 with the minor number, which may change anything."""
    if not isinstance(version, str):
        return None
    first, _, rest = version.partition(".")
    return f"0.{rest.partition('.')[0]}" if first == "0" else first


def _shown(value: object) -> str:
    if value is None or value == "":
        return "unknown"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_shown(one)}" for key, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value)) or "none"
    text = str(value)
    return text[:12] + "…" if len(text) == 64 and all(character in "0123456789abcdef" for character in text) else text


_GPU_MAKER = re.compile(r"^(NVIDIA\s+)?(Tesla\s+)?")
_CPU_NOISE = re.compile(r"\((R|TM)\)|\bCPU\b|\bProcessor\b|@.*$|\b\d+-Core\b", re.IGNORECASE)


def hardware_of(result: Result) -> str:
    """Such as `4 × H100 80GB HBM3`, or `2 CPUs (Intel Xeon Gold 6248)`; empty if the server is elsewhere and no GPU was sampled.

    GPUs that the target is known not to use are left out. The CPUs are those of the load generator's machine, if the server ran there too;
    of a server that perfkit started, only those that it was given. Empty as well if perfkit did not start the server and the machine has GPUs
    that were not sampled: it may have used either.
    """
    host, target = as_mapping(result.environment.get("generator")), as_mapping(result.environment.get("target"))
    server, described = as_mapping(target.get("bundled_server")), as_list(result.environment.get("gpus"))
    names = [gpu.name for gpu in server_gpus(result)] if server.get("device") != "cpu" else []
    if not names and str(server.get("device")).startswith("cuda"):
        names = [str(as_mapping(gpu).get("name")) for gpu in described][:1]
    if names:
        return ", ".join(f"{number} × {name}" for name, number in Counter(_GPU_MAKER.sub("", name) for name in names).items())
    paths = {str(as_mapping(protocol).get("path")) for protocol in as_mapping(target.get("protocols")).values()}
    is_here = bool(paths) and paths <= {"loopback", "unix socket"}
    if not host.get("cpu_model") or not (server or (is_here and not described)):
        return ""
    number = len(as_list(server.get("cpus"))) or host.get("cpus")
    model = " ".join(_CPU_NOISE.sub(" ", str(host["cpu_model"])).split())
    return f"{number} CPU{'' if number == 1 else 's'} ({model})" if number else model


def is_on_gpu(result: Result) -> bool:
    """Whether a GPU served the run: the bundled server's device is CUDA, or the samples of a GPU that the target may use show that it worked.

    Where it is unknown whose work that was, a GPU that was idle does not count.
    """
    device = as_mapping(as_mapping(result.environment.get("target")).get("bundled_server")).get("device")
    if device is not None:
        return str(device).startswith("cuda")
    gpus = [gpu for point in result.summary for gpu in point.server_gpus]
    return any((gpu.utilization_mean or 0.0) > (0.0 if gpu.used_by_server else IDLE_GPU_SHARE) for gpu in gpus)


def server_gpus(result: Result) -> list[GpuFigures]:
    """The GPUs of the first load point that has any; see `Point.server_gpus`."""
    return next((point.server_gpus for point in result.summary if point.gpus), [])
