"""Fixtures that write scenario files."""

import pathlib

import pytest

from perfkit.scenario.file import read_scenario

MINIMAL = "target: {model: m}\nload: {closed: {concurrency: 1}}\n"


@pytest.fixture
def read(tmp_path: pathlib.Path):
    """Reads a text, `MINIMAL` where there is none, as `s.yaml`; no override but those that are given."""

    def read_text(text: str = MINIMAL, settings=(), environ=None, name: str = "s.yaml"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return read_scenario(path, settings, environ or {})

    return read_text
