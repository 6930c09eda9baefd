"""Checks the manifests for Kubernetes against the schemas of Kubernetes and of Dask's operator, and writes a report.

    pip install kubernetes-validate --no-deps dask-kubernetes     # into an environment of their own, which has jsonschema and PyYAML
    PYTHON -m benchmarks.fleet.manifests [--out reports/fleet-manifests.md]

The exit code is 1 if a resource does not fit its schema.
"""

import importlib.metadata
import importlib.util
import pathlib
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


def faults() -> Iterator[tuple[str, str, str]]:
    """For each resource: its file, its kind and name, and how it breaks its schema (empty if it does not)."""
    import kubernetes_validate

    for file in sorted(_FOLDER.glob("*.yaml")):
        for resource in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            name = f"{resource['kind']} {resource['metadata']['name']}"
            try:
                if resource["apiVersion"].startswith("kubernetes.dask.org/"):
                    jsonschema.Draft202012Validator(_operator_schema()).validate(resource)
                else:
                    kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)
            except (jsonschema.ValidationError, kubernetes_validate.ValidationError) as error:
                yield file.name, name, error.message.splitlines()[0]
            else:
                yield file.name, name, ""


def main() -> int:
    """Checks, and writes the report."""
    import kubernetes_validate

    options = program_options(__doc__, out="fleet-manifests")
    page = Report(options.out, "The manifests for Kubernetes beside their schemas")
    operator = importlib.metadata.version("dask-kubernetes")
    page.add(
        f"Schemas of Kubernetes {kubernetes_validate.latest_version()} (strict: unknown keys are faults), and of the operator in dask-kubernetes "
        f"{operator}. Nothing was applied to a cluster.",
        "",
    )
    page.table("file", "resource", "fits its schema")
    for file, resource, fault in faults():
        page.row(file, resource, fault or "yes")
        page.is_met &= not fault
    page.add("", "`python -m benchmarks.fleet.manifests` made this report.")
    return page.write()


if __name__ == "__main__":
    sys.exit(main())
