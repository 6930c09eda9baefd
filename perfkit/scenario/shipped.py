"""The scenarios shipped with perfkit, which can be named in any folder."""

import pathlib

import perfkit
from perfkit.errors import ScenarioError
from perfkit.text.nearest import nearest

_PACKAGE = pathlib.Path(perfkit.__file__).absolute().parent
_FOLDER = _PACKAGE / "scenarios"
SCHEMA_FILE = _PACKAGE / "docs" / "scenario.schema.json"
"""The JSON Schema of scenarios, for editors."""


def shipped_scenarios() -> dict[str, pathlib.Path]:
    """The files of the shipped scenarios, by name."""
    return {path.stem: path for path in sorted(_FOLDER.glob("*.yaml"))}


def find_scenario(text: str) -> pathlib.Path:
    """The file given by a path, or by the name of a shipped scenario; an existing file takes precedence.

    Raises ScenarioError if there is neither.
    """
    path = pathlib.Path(text)
    if path.exists() or path.is_symlink():
        return path
    shipped = shipped_scenarios()
    if text in shipped:
        return shipped[text]
    host, colon, port = text.rpartition(":")
    if "://" in text:
        raise ScenarioError(f"{text}: no such file; this command reads a scenario file")
    if host and colon and port.isdecimal():
        raise ScenarioError(f"{text}: no such file; for a server, write http://{text} or grpc://{text}")
    near = nearest(path.stem if path.parent == pathlib.Path() else "", shipped)
    hint = f"; did you mean '{near[0]}', which perfkit ships?" if near else f"; perfkit ships {', '.join(shipped)}"
    raise ScenarioError(f"{text}: no such file{hint if path.parent == pathlib.Path() else ''}")
