"""Write the table of THIRD_PARTY_LICENSES.md from the metadata of the installed packages: `python -m benchmarks.licenses`.

It lists what `pip install` brings with perfkit and with its extras `server`, `tracing`, `fleet` and `parquet`, each with what its own
metadata say: the licence expression, else the short name, else the classifiers.
"""

import importlib.metadata
import pathlib
import re
import tomllib
from collections.abc import Iterable

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from benchmarks.report import table_head, table_row

ROOT = pathlib.Path(__file__).parents[1]
FILE = ROOT / "THIRD_PARTY_LICENSES.md"
EXTRAS = ("", "server", "tracing", "fleet", "parquet")
_ROW = re.compile(r"^\| `([^`]+)` \| (.+?) \| (.+?) \|$", re.MULTILINE)
_LONGEST_NAME = 40  # some packages have the text of the licence in the place of its name
# the oldest Python needs the most packages
_PYTHON = {"python_version": "3.11", "python_full_version": "3.11.0"}


def required(requirements: Iterable[str], extras: Iterable[str]) -> dict[str, set[str]]:
    """The packages that requirements name under some extras, by canonical name, with the extras of each that they ask for."""
    found: dict[str, set[str]] = {}
    for requirement in map(Requirement, requirements):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({**_PYTHON, "extra": extra}) for extra in {"", *extras}):
            found.setdefault(canonicalize_name(requirement.name), {""}).update(requirement.extras)
    return found


def licence_of(metadata: importlib.metadata.PackageMetadata) -> str:
    """What a package says about its licence; `not stated` if it says nothing."""
    expression, names, classifiers = (metadata.get_all(field) or [] for field in ("License-Expression", "License", "Classifier"))
    short = [name for name in names if len(name) <= _LONGEST_NAME and "\n" not in name]
    kinds = [one.rpartition(" :: ")[2] for one in classifiers if one.startswith("License ::")]
    return " / ".join(expression or short or kinds) or "not stated"


def read_installed() -> dict[str, tuple[str | None, str]]:
    """Every package that comes with perfkit: its licence (None if it is not installed), and the first of EXTRAS that brings it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras_of = {"": project["dependencies"], **project["optional-dependencies"]}
    found: dict[str, tuple[str | None, str]] = {}
    for extra in EXTRAS:
        todo = list(required(extras_of[extra], ()).items())
        while todo:
            name, extras = todo.pop()
            if name in found:
                continue
            try:
                distribution = importlib.metadata.distribution(name)
            except importlib.metadata.PackageNotFoundError:
                found[name] = (None, extra)
                continue
            found[name] = (licence_of(distribution.metadata), extra)
            todo += required(distribution.requires or (), extras).items()
    return found


def read_table(text: str) -> dict[str, tuple[str, str]]:
    """The rows of the file: each package's licence, and the extra that brings it."""
    return {name: (licence, "" if extra == "perfkit" else extra.strip("`")) for name, licence, extra in _ROW.findall(text)}


def with_table(text: str, packages: dict[str, tuple[str | None, str]]) -> str:
    """The file's text with a new table between its two marks."""
    before, _, rest = text.partition("<!-- packages -->\n")
    _, _, after = rest.partition("<!-- end of packages -->\n")
    rows = [table_row(f"`{name}`", licence, f"`{extra}`" if extra else "perfkit") for name, (licence, extra) in sorted(packages.items())]
    table = "\n".join([*table_head("package", "licence", "comes with"), *rows])
    return f"{before}<!-- packages -->\n{table}\n<!-- end of packages -->\n{after}"


if __name__ == "__main__":
    FILE.write_text(with_table(FILE.read_text(encoding="utf-8"), read_installed()), encoding="utf-8")
