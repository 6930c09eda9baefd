"""The container files name what exists; `containers/build-on-debian.sh` builds them, which takes minutes."""

import contextlib
import pathlib
import re
import socket
import subprocess
import sys
import tomllib

import pytest

from containers.healthcheck import is_healthy
from perfkit.installation import REPOSITORY
from tests.json_server import JsonHandler, serving

ROOT = pathlib.Path(__file__).parents[2]
DOCKERFILE = (ROOT / "containers" / "Dockerfile").read_text()
IGNORED = (ROOT / "containers" / "Dockerfile.dockerignore").read_text().splitlines()


def copied():
    """The sources of each COPY from the build's context."""
    lines = re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
    return [source for line in lines for source in line.split()[:-1]]


def test_everything_that_is_copied_exists_and_is_let_through():
    assert len(copied()) == 11
    linked = {path.resolve().relative_to(ROOT).parts[0] for path in (ROOT / "perfkit").iterdir() if path.is_symlink()}
    assert linked <= set(copied())
    assert all((ROOT / source).exists() for source in copied())
    assert {line[1:] for line in IGNORED if line.startswith("!")} == set(copied())


def test_the_targets_install_extras_that_exist():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    targets = dict(re.findall(r"^FROM base AS (\w+)\n(?:(?!FROM).*\n)*?RUN .*\[([\w,]+)\]", DOCKERFILE, re.MULTILINE))
    assert targets == {"cpu": "server,fleet", "cuda": "cuda,fleet"}
    assert {extra for names in targets.values() for extra in names.split(",")} <= set(extras)


def test_the_base_is_one_python_that_perfkit_supports_and_every_stage_starts_from_it():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (version,) = re.findall(r"^ARG PYTHON=(\d+\.\d+)\.\d+-slim-\w+$", DOCKERFILE, re.MULTILINE)
    assert f"Programming Language :: Python :: {version}" in project["classifiers"]
    assert set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)) == {"python:${PYTHON}", "base"}


def test_the_labels_say_what_the_metadata_say():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    labels = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', DOCKERFILE))
    expected = {"title": project["name"], "description": project["description"], "licenses": project["license"], "source": REPOSITORY}
    assert {name: labels[name] for name in expected} == expected
    assert labels["documentation"].startswith(REPOSITORY)
    assert labels["version"] == "${VERSION}"


@pytest.fixture
def answering():
    """Makes a server on a free port that answers every request with one status."""
    with contextlib.ExitStack() as servers:

        def start(status):
            class Handler(JsonHandler):
                def do_GET(self):
                    self.answer(status, {})

            return servers.enter_context(serving(Handler))

        yield start


@pytest.mark.parametrize(("status", "expected"), [(200, True), (400, False), (503, False)])
def test_a_container_that_serves_is_healthy_when_the_server_is_ready(answering, status, expected):
    assert is_healthy(answering(status), timeout_s=30) == expected


def test_a_container_without_a_server_is_healthy():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert is_healthy(unused.getsockname()[1], timeout_s=30)


def test_a_server_that_does_not_answer_is_not_healthy():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert not is_healthy(silent.getsockname()[1], timeout_s=0.05)


def test_every_image_ends_as_a_user_that_is_not_root():
    for stage in DOCKERFILE.split("\nFROM ")[2:]:
        assert re.findall(r"^USER (.+)$", stage, re.MULTILINE)[-1] == "1000:1000", stage


def test_shellcheck_has_nothing_to_say_of_the_script_that_builds_them():
    shellcheck = pathlib.Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([shellcheck, ROOT / "containers" / "build-on-debian.sh"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
