"""`--resume`: what an interrupted or killed run has measured is taken from its folder."""

import argparse
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perfkit.errors import UsageError

if TYPE_CHECKING:
    from perfkit.result.model import Result
    from perfkit.result.sweep import SweepDocument
    from perfkit.scenario.file import Case, LoadedScenario


def add_resume(parser: argparse.ArgumentParser, of: str = "load points that an interrupted or killed run") -> None:
    """Adds --resume, for measurements in these words."""
    parser.add_argument("--resume", action="store_true", help=f"take the {of} has measured from --out, and measure only the rest")


def check_resume(options: argparse.Namespace) -> None:
    """Raises UsageError for --resume without a folder."""
    if options.resume and options.out is None:
        raise UsageError("--resume needs --out DIR, the folder to continue in")


def complete_result(loaded: "LoadedScenario", options: argparse.Namespace) -> "Result | None":
    """The result in the folder that --resume would continue in, if it is complete already; raises ResultError for one of another scenario."""
    from perfkit.result.model import Result
    from perfkit.result.unfinished import find_unfinished
    from perfkit.scenario.file import scenario_document

    found = find_unfinished(options.out, scenario_document(loaded.scenario)) if options.resume else None
    return found if isinstance(found, Result) else None


def whole_points(folder: pathlib.Path, sweep: "SweepDocument", cases: "Sequence[Case]", indices: Sequence[int]) -> dict[int, int]:
    """How many load points each of these cases of a sweep has to continue after, by index.

    Raises ResultError if one of them is of another scenario, before any load is sent.
    """
    from perfkit.result.unfinished import find_unfinished
    from perfkit.result.whole_points import UnfinishedResult
    from perfkit.scenario.file import scenario_document

    found = {
        index: find_unfinished(folder / sweep.cases[index].folder, scenario_document(cases[index].loaded.scenario)) for index in indices
    }
    return {index: len(one.points) if isinstance(one, UnfinishedResult) else 0 for index, one in found.items()}
