"""The manifests for Kubernetes and the script for Slurm: what they run are commands of perfkit and of Dask, and their parts fit together.

Helm renders the chart to the same. `python -m benchmarks.fleet.manifests` checks all against the schemas of Kubernetes and of Dask's operator.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys

import pytest
import yaml
from distributed.cli import dask_scheduler, dask_worker

import perfkit
from perfkit.cli.main import make_parser
from tests.helm import helm

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "containers/kubernetes"
CHART = FOLDER / "chart"
SCENARIO = """name: smoke  # with a comment
target: {url: "http://server:8000", model: 'm"1'}
load:
  closed: {concurrency: 4}
"""
PAGE = ROOT / "docs/how-to/fleet-deployment.md"


def resources(name):
    return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all((FOLDER / name).read_text())}


@pytest.fixture(scope="module")
def fleet():
    return resources("fleet.yaml")


@pytest.fixture(scope="module")
def dask_cluster():
    return resources("dask-cluster.yaml")["DaskCluster", "perfkit"]["spec"]


def pod(job):
    return job["spec"]["template"]["spec"], job["spec"]["template"]["spec"]["containers"][0]


def parsed(words) -> argparse.Namespace:
    parser, _ = make_parser([words[0]])
    return parser.parse_args(words)


def test_the_jobs_run_as_many_machines_as_the_driver_waits_for(fleet):
    machines = fleet["Job", "perfkit-machines"]["spec"]
    driver = parsed(pod(fleet["Job", "perfkit-driver"])[1]["args"])
    worker = parsed(pod(fleet["Job", "perfkit-machines"])[1]["args"])
    assert driver.machines == machines["completions"] == machines["parallelism"]
    assert worker.join == "tcp://perfkit-driver:8790"
    assert machines["completionMode"] == "Indexed"
    assert (machines["backoffLimitPerIndex"], fleet["Job", "perfkit-driver"]["spec"]["backoffLimit"]) == (0, 0)


def test_the_machines_reach_the_driver_by_its_service(fleet):
    service = fleet["Service", "perfkit-driver"]["spec"]
    _, container = pod(fleet["Job", "perfkit-driver"])
    (port,) = service["ports"]
    assert service["selector"].items() <= fleet["Job", "perfkit-driver"]["spec"]["template"]["metadata"]["labels"].items()
    assert [one["containerPort"] for one in container["ports"] if one["name"] == port["targetPort"]] == [port["port"]]
    assert parsed(container["args"]).fleet == f"listen://0.0.0.0:{port['port']}"
    assert service["publishNotReadyAddresses"]


def test_both_jobs_have_the_same_token_from_a_secret_and_volumes_that_exist(fleet):
    jobs = [pod(one) for (kind, _), one in fleet.items() if kind == "Job"]
    tokens = [[one for one in container["env"] if one["name"] == "PERFKIT_FLEET_TOKEN"] for _, container in jobs]
    assert tokens[0] == tokens[1]
    assert tokens[0][0]["valueFrom"]["secretKeyRef"] == {"name": "perfkit-fleet", "key": "token"}
    for spec, container in jobs:
        assert {one["name"] for one in container.get("volumeMounts", [])} == {one["name"] for one in spec.get("volumes", [])}
        assert "cpu" not in container["resources"]["limits"], "a quota stops the load generator"
    claims = {
        one["persistentVolumeClaim"]["claimName"] for spec, _ in jobs for one in spec.get("volumes", []) if "persistentVolumeClaim" in one
    }
    assert claims == {name for kind, name in fleet if kind == "PersistentVolumeClaim"}


def test_the_job_of_one_pod_runs_a_scenario_from_its_config_map_into_its_volume():
    one_pod = resources("job.yaml")
    spec, container = pod(one_pod["Job", "perfkit-run"])
    words = container["args"]
    mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
    volumes = {one["name"]: one for one in spec["volumes"]}
    assert (words[0], words[2]) == ("run", "--out")
    assert volumes[mounts[str(pathlib.PurePath(words[1]).parent)]]["configMap"]["name"] in PAGE.read_text()
    claim = volumes[mounts[str(pathlib.PurePath(words[3]).parent)]]["persistentVolumeClaim"]["claimName"]
    assert ("PersistentVolumeClaim", claim) in one_pod
    assert set(mounts.values()) == set(volumes)
    assert one_pod["Job", "perfkit-run"]["spec"]["backoffLimit"] == 0
    assert spec["securityContext"]["runAsNonRoot"]
    assert "cpu" not in container["resources"]["limits"], "a quota stops the load generator"


def test_the_dask_cluster_has_options_that_dask_knows_and_only_its_pods_and_the_driver_reach_it(dask_cluster):
    (scheduler,), (worker,) = (dask_cluster[part]["spec"]["containers"] for part in ("scheduler", "worker"))
    for container, command in ((scheduler, dask_scheduler.main), (worker, dask_worker.main)):
        assert container["command"] == ["dask"]
        name, *options = container["args"]
        assert name == command.name
        assert command.make_context(name, [*options, *(["tcp://h:1"] if command is dask_worker.main else [])]).params
        given = dict(zip(options[::2], options[1::2], strict=True))
        assert (given["--host"], given["--dashboard-address"][:10]) == ("$(POD_IP)", "$(POD_IP):")
    policy = resources("dask-cluster.yaml")["NetworkPolicy", "perfkit"]["spec"]
    assert policy["podSelector"]["matchLabels"] == {"dask.org/cluster-name": "perfkit"}
    assert [one["podSelector"]["matchLabels"] for one in policy["ingress"][0]["from"]] == [
        {"dask.org/cluster-name": "perfkit"}, {"perfkit": "driver"},
    ]  # fmt: skip
    ports = {one["name"] for one in scheduler["ports"]}
    assert {one["targetPort"] for one in dask_cluster["scheduler"]["service"]["ports"]} == ports


@pytest.fixture(scope="module")
def program():
    return helm() or pytest.skip("there is no Helm: python -m tests.helm installs it")


@pytest.fixture
def rendered(program, tmp_path):
    """The resources of the chart with these values, by kind and name."""
    (tmp_path / "scenario.yaml").write_text(SCENARIO)

    def render(release="perfkit", **values):
        (tmp_path / "values.yaml").write_text(json.dumps(values))
        command = [program, "template", release, CHART, "--set-file", f"scenario={tmp_path / 'scenario.yaml'}"]
        done = subprocess.run([*command, "--values", tmp_path / "values.yaml"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(done.stdout)}

    return render


def test_the_chart_is_correct_and_of_this_version(program):
    done = subprocess.run([program, "lint", "--strict", CHART], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == perfkit.__version__


def test_the_chart_without_a_fleet_is_the_manifest_of_one_pod(rendered):
    found = rendered()
    scenario = found.pop(("ConfigMap", "perfkit-scenario"))
    assert scenario["data"] == {"scenario.yaml": SCENARIO}
    # the result outlives the release
    assert found["PersistentVolumeClaim", "perfkit-run"]["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert found == resources("job.yaml")


def test_the_chart_with_a_fleet_is_the_manifest_of_the_cluster_and_the_job_drives_it(rendered):
    found = rendered(fleet={"machines": 4})
    for key, resource in resources("dask-cluster.yaml").items():
        assert found[key] == resource
    job = found["Job", "perfkit-run"]
    assert job["spec"]["template"]["metadata"]["labels"]["perfkit"] == "driver"  # as the network policy asks
    options = parsed(pod(job)[1]["args"])
    assert (options.fleet, options.machines, options.settings) == ("tcp://perfkit-scheduler:8786", 4, ["fleet.join_within=10m"])


def test_each_value_of_the_chart_has_its_effect(rendered):
    amounts = {"requests": {"cpu": "8", "memory": "3Gi"}, "limits": {"memory": "3Gi"}}
    found = rendered(
        "bench", image="registry.test/perfkit:1", target="http://triton.models.svc:8000", arguments=["--otlp", "http://collector:4318"],
        resources=amounts, storage="5Gi", deleteAfterSeconds=0, fleet={"machines": 2, "joinWithin": "1m", "resources": amounts},
        envFrom=["tokens"], imagePullSecrets=["registry"], nodeSelector={"pool": "load"},
    )  # fmt: skip
    job = found["Job", "bench-run"]
    _, container = pod(job)
    options = parsed(container["args"])
    assert options.settings == ["target.url=http://triton.models.svc:8000", "fleet.join_within=1m"]
    assert (options.otlp, options.fleet) == ("http://collector:4318", "tcp://bench-scheduler:8786")
    assert job["spec"]["ttlSecondsAfterFinished"] == 0
    assert found["PersistentVolumeClaim", "bench-run"]["spec"]["resources"] == {"requests": {"storage": "5Gi"}}
    worker = found["DaskCluster", "bench"]["spec"]["worker"]
    assert worker["replicas"] == 2
    containers = [container, *worker["spec"]["containers"], *found["DaskCluster", "bench"]["spec"]["scheduler"]["spec"]["containers"]]
    assert {one["image"] for one in containers} == {"registry.test/perfkit:1"}
    assert [one["resources"] for one in containers[:2]] == [amounts, amounts]
    assert container["envFrom"] == [{"secretRef": {"name": "tokens"}}]
    for spec in (pod(job)[0], worker["spec"], found["DaskCluster", "bench"]["spec"]["scheduler"]["spec"]):
        assert (spec["imagePullSecrets"], spec["nodeSelector"]) == ([{"name": "registry"}], {"pool": "load"})
    policy = found["NetworkPolicy", "bench"]["spec"]
    assert policy["podSelector"]["matchLabels"] == {"dask.org/cluster-name": "bench"}


def test_large_numbers_of_a_file_of_values_are_whole_numbers(rendered):
    """Helm reads them as floating-point ones, and would write 1.2096e+06."""
    found = rendered(deleteAfterSeconds=1_209_600, fleet={"machines": 2_000_000})
    assert found["Job", "perfkit-run"]["spec"]["ttlSecondsAfterFinished"] == 1_209_600
    words = pod(found["Job", "perfkit-run"])[1]["args"]
    assert words[words.index("--machines") + 1] == "2000000"
    assert found["DaskCluster", "perfkit"]["spec"]["worker"]["replicas"] == 2_000_000


@pytest.mark.parametrize(
    ("values", "what"),
    [
        (["fleet.size=3"], "size"),
        (["deleteAfterSeconds=soon"], "deleteAfterSeconds"),
        (["image=perfkit:cpu"], "scenario is missing: --set-file scenario=scenario.yaml"),
    ],
)
def test_values_that_the_chart_does_not_have_are_refused(program, values, what):
    words = [word for value in values for word in ("--set", value)]
    done = subprocess.run([program, "template", "perfkit", CHART, *words], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert what in done.stderr


def test_the_slurm_script_is_correct_shell_and_its_commands_are_perfkits(tmp_path):
    (script,) = re.findall(r"```bash\n(#!/bin/bash\n#SBATCH.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "fleet.sbatch").write_text(script)
    checked = subprocess.run(
        [pathlib.Path(sys.executable).with_name("shellcheck"), tmp_path / "fleet.sbatch"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout
    lines = re.findall(r"perfkit ((?:worker|run) .*?)(?: &)?$", script.replace("\\\n", ""), re.MULTILINE)
    worker, run = (parsed([word.strip('"') for word in line.split()]) for line in lines)
    nodes, tasks = re.findall(r"--nodes=(\d+)", script), re.findall(r"--ntasks=(\d+)", script)
    assert int(nodes[0]) == run.machines + 1
    assert {int(nodes[1]), int(tasks[0])} == {run.machines}
    assert worker.join.endswith(run.fleet.rpartition(":")[2])
