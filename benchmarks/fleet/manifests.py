"""Checks the manifests for Kubernetes, and what Helm makes of the chart, against the schemas of Kubernetes and of Dask's operator.

    pip install kubernetes-validate --no-deps dask-kubernetes     # into an environment of their own, which has jsonschema and PyYAML
    PYTHON -m benchmarks.fleet.manifests [--helm .venv/bin/helm] [--out reports/fleet-manifests.md]

The exit code is 1 if a resource does not fit its schema.
"""

import importlib.metadata
import importlib.util
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import jsonschema
import yaml

from benchmarks.report import Report, program_options

_ROOT = pathlib.Path(__file__).parents[2]
_FOLDER = _ROOT / "containers/kubernetes"
_CRD = "operator/deployment/helm/dask-kubernetes-operator/crds/daskcluster.yaml"


def _operator_schema() -> dict[str, Any]:
    found = importlib.util.find_spec("dask_kubernetes")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("dask-kubernetes is not installed; the first lines of this file say how")
    definition = yaml.safe_load((pathlib.Path(found.submodule_search_locations[0]) / _CRD).read_text(encoding="utf-8"))
    (version,) = definition["spec"]["versions"]
    return dict(version["schema"]["openAPIV3Schema"])


def _files(helm: str) -> Iterator[tuple[str, str]]:
    """The manifests, and the chart as Helm renders it with each value other than its default; the name and the text of each."""
    for file in sorted(_FOLDER.glob("*.yaml")):
        yield file.name, file.read_text(encoding="utf-8")
    values = "fleet.machines=4,deleteAfterSeconds=600,target=http://triton.models.svc:8000,arguments={--quiet}"
    command = [helm, "template", "bench", str(_FOLDER / "chart"), "--set-file", f"scenario={_ROOT / 'scenarios/gate.yaml'}"]
    yield "chart", subprocess.run([*command, "--set", values], capture_output=True, text=True, check=True).stdout


def faults(helm: str) -> Iterator[tuple[str, str, str]]:
    """For each resource: its file, its kind and name, and how it breaks its schema (empty if it does not)."""
    import kubernetes_validate

    for file, text in _files(helm):
        for resource in yaml.safe_load_all(text):
            name = f"{resource['kind']} {resource['metadata']['name']}"
            try:
                if resource["apiVersion"].startswith("kubernetes.dask.org/"):
                    jsonschema.Draft202012Validator(_operator_schema()).validate(resource)
                else:
                    kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)
            except (jsonschema.ValidationError, kubernetes_validate.ValidationError) as error:
                yield file, name, error.message.splitlines()[0]
            else:
                yield file, name, ""


def _version(helm: str) -> str:
    return subprocess.run([helm, "version", "--short"], capture_output=True, text=True, check=True).stdout.partition("+")[0].strip()


def main() -> int:
    """Checks, and writes the report."""
    import kubernetes_validate

    options = program_options(__doc__, out="fleet-manifests", helm=("helm", "the program of Helm"))
    page = Report(options.out, "The manifests for Kubernetes beside their schemas")
    operator = importlib.metadata.version("dask-kubernetes")
    page.add(
        f"Schemas of Kubernetes {kubernetes_validate.latest_version()} (strict: unknown keys are faults), and of the operator in dask-kubernetes "
        f"{operator}. The chart is rendered by Helm {_version(options.helm)}. Nothing was applied to a cluster.",
        "",
    )
    page.table("file", "resource", "fits its schema")
    for file, resource, fault in faults(options.helm):
        page.row(file, resource, fault or "yes")
        page.is_met &= not fault
    page.add("", "`python -m benchmarks.fleet.manifests` made this report.")
    return page.write()


if __name__ == "__main__":
    sys.exit(main())
