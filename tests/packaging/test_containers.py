"""The container files name what exists; they are not built here, where there is no container engine."""

import pathlib
import re
import tomllib

ROOT = pathlib.Path(__file__).parents[2]
DOCKERFILE = (ROOT / "containers" / "Dockerfile").read_text()
IGNORED = (ROOT / "containers" / "Dockerfile.dockerignore").read_text().splitlines()


def copied():
    """The sources of each COPY from the build's context."""
    lines = re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
    return [source for line in lines for source in line.split()[:-1]]


def test_everything_that_is_copied_exists_and_is_let_through():
    assert len(copied()) == 8
    linked = {path.resolve().relative_to(ROOT).parts[0] for path in (ROOT / "perfkit").iterdir() if path.is_symlink()}
    assert linked <= set(copied())
    assert all((ROOT / source).exists() for source in copied())
    assert {line[1:] for line in IGNORED if line.startswith("!")} == set(copied())


def test_the_targets_install_extras_that_exist():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    targets = dict(re.findall(r"^FROM base AS (\w+)\n(?:(?!FROM).*\n)*?RUN .*\[(\w+)\]", DOCKERFILE, re.MULTILINE))
    assert targets == {"cpu": "server", "cuda": "cuda"}
    assert set(targets.values()) <= set(extras)


def test_every_image_ends_as_a_user_that_is_not_root():
    for stage in DOCKERFILE.split("\nFROM ")[2:]:
        assert re.findall(r"^USER (.+)$", stage, re.MULTILINE)[-1] == "1000:1000", stage
