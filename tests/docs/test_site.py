"""The documentation site: it is built strictly, so that every link and anchor of every Markdown file of the repository leads somewhere."""

import pathlib
import re

import pytest

from docs_build.repository_files import with_links_in_site
from perfkit.cli.help import help_topics

ROOT = pathlib.Path(__file__).parents[2]
OTHER_HOSTS = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>")


def test_the_site_has_every_page_and_every_other_markdown_file(site):
    pages = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    assert {f"{path.relative_to(ROOT / 'docs').with_suffix('.html')}" for path in (ROOT / "docs").rglob("*.md")} <= pages
    others = {
        "reports/peers.html",
        "contributing.html",
        "changelog.html",
        "source/index.html",
        "source/scenarios/request-options.yaml.html",
    }
    assert others <= pages


def test_a_page_loads_nothing_from_other_hosts(site):
    assert [(path.name, found[0]) for path in site.rglob("*.html") for found in OTHER_HOSTS.finditer(path.read_text("utf-8"))] == []


def test_every_page_has_a_topic_of_its_own_in_perfkit_help():
    names = [path.stem for path in (ROOT / "docs").rglob("*.md") if path.stem != "index"]
    assert sorted(names) == sorted(help_topics())


@pytest.mark.parametrize(
    ("path", "link", "in_site"),
    [
        ("docs/how-to/ci.md", "../../reports/peers.md", "../reports/peers.md"),
        ("docs/how-to/ci.md", "../concepts/gating.md", "../concepts/gating.md"),
        ("docs/index.md", "../CONTRIBUTING.md", "contributing.md"),
        ("docs/index.md", "../scenarios/densenet.yaml", "source/scenarios/densenet.yaml.md"),
        ("reports/bisect-live.md", "../docs/how-to/bisecting.md", "../how-to/bisecting.md"),
        ("CONTRIBUTING.md", "docs/architecture.md", "architecture.md"),
        ("benchmarks/gpu/README.md", "../../docs/how-to/telemetry-gpu.md", "../../../how-to/telemetry-gpu.md"),
        ("docs/index.md", "not-there.md", "not-there.md"),
        ("docs/index.md", "https://example.org/x.md", "https://example.org/x.md"),
    ],
)
def test_links_between_files_of_the_repository_become_links_in_the_site(path, link, in_site):
    assert (
        with_links_in_site(f"see [this]({link}) and [a part]({link}#part)", path, ROOT)
        == f"see [this]({in_site}) and [a part]({in_site}#part)"
    )
