"""THIRD_PARTY_LICENSES.md: every package that comes with perfkit, with the licence that its metadata name, and what perfkit contains."""

import importlib.metadata
import pathlib
import re
import tomllib

import pytest
from packaging.licenses import canonicalize_license_expression

from benchmarks.licenses import FILE, licence_of, read_installed, read_table, required, with_table

ROOT = pathlib.Path(__file__).parents[2]
TEXT = FILE.read_text(encoding="utf-8")


def test_the_table_is_what_the_installed_packages_say():
    installed, listed = read_installed(), read_table(TEXT)
    assert len(installed) > 40
    known = {name: row for name, row in installed.items() if row[0] is not None}
    assert {name: listed.get(name) for name in known} == known, "write it anew: python -m benchmarks.licenses"
    if known == installed:  # all are installed, as in the environment that `make` sets up for the oldest Python
        assert listed.keys() == installed.keys()


def test_every_package_that_perfkit_asks_for_is_listed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    asked = required([*project["dependencies"], *extras["server"], *extras["tracing"], *extras["fleet"], *extras["parquet"]], ())
    assert asked.keys() <= read_table(TEXT).keys()


def test_the_expression_names_the_licences_of_what_the_wheel_contains():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert canonicalize_license_expression(project["license"]) == project["license"]
    inside = TEXT.partition("## Inside perfkit")[2].partition("##")[0]
    rows = [row for row in inside.splitlines() if row.startswith("|") and "not in the wheel" not in row][2:]
    assert {"Apache-2.0"} | {re.findall(r"\| ([\w.-]+)[^|]*\|$", row)[0] for row in rows} == set(project["license"].split(" AND "))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ([("License-Expression", "MIT"), ("License", "other")], "MIT"),
        ([("License", "Apache 2.0"), ("Classifier", "License :: OSI Approved :: Apache Software License")], "Apache 2.0"),
        ([("License", "Copyright 2001\n        All rights"), ("Classifier", "License :: OSI Approved :: BSD License")], "BSD License"),
        ([("Classifier", "License :: A"), ("Classifier", "License :: OSI Approved :: B"), ("Classifier", "Topic :: C")], "A / B"),
        ([], "not stated"),
    ],
)
def test_a_licence_is_the_expression_else_a_short_name_else_the_classifiers(tmp_path, fields, expected):
    (tmp_path / "METADATA").write_text("".join(f"{name}: {value}\n" for name, value in [("Name", "x"), *fields]), encoding="utf-8")
    assert licence_of(importlib.metadata.PathDistribution(tmp_path).metadata) == expected


def test_markers_are_those_of_the_oldest_python_and_of_the_extras():
    asked = ["A_b>=1", "old; python_version < '3.12'", "new; python_version >= '3.12'", "c[d]; extra == 'x'", "e; extra == 'y'"]
    assert required(asked, {"x"}) == {"a-b": {""}, "old": {""}, "c": {"", "d"}}


def test_the_table_that_is_written_is_the_table_that_is_read():
    text = with_table(TEXT, {"b": ("MIT / BSD License", "fleet"), "a": ("MPL-2.0", "")})
    assert read_table(text) == {"a": ("MPL-2.0", ""), "b": ("MIT / BSD License", "fleet")}
    assert text.startswith(TEXT.partition("<!--")[0])
    assert text.endswith(TEXT.rpartition("-->")[2])
