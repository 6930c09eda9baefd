"""No text names perfkit as a package of an index, where the name may be anybody's, until perfkit.installation says that it is there."""

import pathlib
import re
import tomllib

import pytest

from perfkit.installation import INSTALL_FROM, REPOSITORY, install_command

ROOT = pathlib.Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = "|".join(PROJECT["optional-dependencies"])
# the name alone, with a version or extras; not perfkit/folder, perfkit-1.whl, or `perfkit @ URL`
BY_NAME = re.compile(
    r"(?:pip3? install|pipx (?:install|run)|uv (?:pip install|add|tool install)|uvx|poetry add|conda install)"
    r"(?:\s+-\S+)*\s+['\"]?perfkit(?![\w/.-])(?!(?:\[[^\]]*\])?\s*@)"
)
WITH_EXTRAS = re.compile(rf"install\s+(?:-\S+\s+)*['\"]?([^\s'\"\[]+)\[(?:(?:{EXTRAS}),?)+\]")


def texts():
    """Every file that people read or programs run, but this test."""
    folders = (
        ROOT / name for name in (".ci", ".github", "benchmarks", "containers", "docs", "perfkit", "reports", "scenarios", "server_stub")
    )
    files = [*ROOT.glob("*.*"), ROOT / "Makefile", *(path for folder in folders for path in folder.rglob("*"))]
    suffixes = {".py", ".md", ".yml", ".yaml", ".ipynb", ".toml", ".sh", ".json", ".html", ".j2", ".txt", ""}
    return {path: path.read_text(encoding="utf-8") for path in files if path.suffix in suffixes and path.is_file()}


def test_nothing_tells_people_to_install_a_package_of_this_name():
    found = texts()
    assert len(found) > 500
    assert INSTALL_FROM == "perfkit" or [path for path, text in found.items() if BY_NAME.search(text)] == []


def test_every_command_with_extras_installs_from_where_the_constant_says():
    commands = {(path, source) for path, text in texts().items() for source in WITH_EXTRAS.findall(text)}
    assert len(commands) > 5
    allowed = re.compile(rf"{re.escape(INSTALL_FROM)}|\.|\S*(?:://|\.whl)\S*")  # a checkout, a wheel or a URL is right at any time
    assert [(path, source) for path, source in commands if not allowed.fullmatch(source)] == []


def test_messages_take_the_command_from_the_constant():
    modules = [*(ROOT / "perfkit").rglob("*.py"), *(ROOT / "server_stub").rglob("*.py")]
    assert [path for path in modules if WITH_EXTRAS.search(path.read_text(encoding="utf-8"))] == []
    assert install_command("cuda") == "pip install '.[cuda]' in perfkit's repository"


def test_the_metadata_point_to_the_repository():
    assert PROJECT["urls"]["Repository"] == REPOSITORY
    assert all(url.startswith(REPOSITORY) for url in PROJECT["urls"].values())


@pytest.mark.parametrize(
    "text",
    ["pip install perfkit", "pip install -U 'perfkit[server]'", "pip install perfkit==1.0", "uvx perfkit run", "uv tool install perfkit,"],
)
def test_the_name_alone_is_found(text):
    assert BY_NAME.search(text)


@pytest.mark.parametrize(
    "text",
    ["pip install perfkit/dist", "pip install perfkit-0.1.0-py3-none-any.whl", "pip install 'perfkit[server] @ git+https://x/perfkit'"],
)
def test_paths_and_urls_are_not(text):
    assert not BY_NAME.search(text)
