"""The scenarios that perfkit ships, which are found by name in any folder."""

import difflib
import pathlib

import perfkit
from perfkit.errors import ScenarioError

_FOLDER = pathlib.Path(perfkit.__file__).absolute().parent / "scenarios"


def shipped_scenarios() -> dict[str, pathlib.Path]:
    """The file of each shipped scenario by name."""
    return {path.stem: path for path in sorted(_FOLDER.glob("*.yaml"))}


def find_scenario(text: str) -> pathlib.Path:
    """The file that a path or a name stands for; a file in the current folder comes before a shipped scenario.

    Raises ScenarioError if there is neither.
    """
    path = pathlib.Path(text)
    if path.exists() or path.is_symlink():
        return path
    shipped = shipped_scenarios()
    if text in shipped:
        return shipped[text]
    host, colon, port = text.rpartition(":")
    if host and colon and port.isdecimal():
        raise ScenarioError(f"{text}: no such file; for a server, write http://{text} or grpc://{text}")
    near = difflib.get_close_matches(path.stem if path.parent == pathlib.Path() else "", shipped, n=1)
    hint = f"; did you mean '{near[0]}', which perfkit ships?" if near else f"; perfkit ships {', '.join(shipped)}"
    raise ScenarioError(f"{text}: no such file{hint if path.parent == pathlib.Path() else ''}")
