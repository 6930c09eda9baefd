"""The files for contributors: templates, hooks and policies fit their schemas, and name what exists."""

import pathlib
import re
import subprocess
import sys

import pytest
import yaml

from perfkit.installation import REPOSITORY

ROOT = pathlib.Path(__file__).parents[2]
TEMPLATES = ROOT / ".github" / "ISSUE_TEMPLATE"
PAGES = [ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "RELEASING.md", "SECURITY.md", "THIRD_PARTY_LICENSES.md")]


@pytest.mark.parametrize(
    ("schema", "files"),
    [("github-issue-forms", [TEMPLATES / "bug.yml", TEMPLATES / "idea.yml"]), ("github-issue-config", [TEMPLATES / "config.yml"])],
    ids=["forms", "config"],
)
def test_the_issue_templates_fit_githubs_schemas(schema, files):
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_address_of_the_repository_is_the_constants():
    texts = "".join(path.read_text(encoding="utf-8") for path in (*PAGES, *(ROOT / ".github").rglob("*.*")))
    found = re.findall(r"https://[\w./-]*/perfkit\b", texts)
    assert len(found) > 3
    assert set(found) == {REPOSITORY}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_files_that_the_pages_link_to_are_there(page):
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_hooks_run_what_make_check_runs():
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    entries = {hook["id"]: hook["entry"].split()[0] for hook in repository["hooks"] if hook["language"] == "system"}
    check = re.search(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert check is not None
    programs = set(re.findall(r"\$\(BIN\)/(\w+)", check[1]))
    assert {entry.removeprefix(".venv/bin/") for entry in entries.values()} == programs | {"shellcheck"}


def test_the_first_entry_of_the_changelog_is_the_unreleased_one_in_the_forms_sections():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert versions[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", version) for version in versions[1:])
    sections = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.+)$", text, re.MULTILINE)) <= sections


def test_the_version_has_one_place():
    version = re.search(r'^__version__ = "(.+)"$', (ROOT / "perfkit/__init__.py").read_text(encoding="utf-8"), re.MULTILINE)
    assert version is not None
    others = [ROOT / "pyproject.toml", ROOT / "containers/Dockerfile", ROOT / "mkdocs.yml"]
    assert [path for path in others if f'"{version[1]}"' in path.read_text(encoding="utf-8")] == []
