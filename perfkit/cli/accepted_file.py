"""The file of accepted changes that a command uses."""

import argparse
import pathlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfkit.history.accepted import AcceptedChanges


def add_accepted(parser: argparse.ArgumentParser) -> None:
    """Adds --accepted."""
    parser.add_argument(
        "--accepted",
        type=pathlib.Path,
        metavar="FILE",
        help="known and accepted changes, from `perfkit gate accept`; default: perfkit-accepted.yaml beside the scenario or here, if there is one",
    )


def find_accepted_file(options: argparse.Namespace, scenario: pathlib.Path | None = None) -> pathlib.Path | None:
    """The file that `--accepted` names, otherwise the one beside the scenario or in the current folder; None if there is none."""
    from perfkit.history.accepted import ACCEPTED_FILE

    places = [folder / ACCEPTED_FILE for folder in ([] if scenario is None else [scenario.parent]) + [pathlib.Path()]]
    named: pathlib.Path | None = options.accepted
    return named or next((place for place in places if place.exists()), None)


def read_accepted_changes(path: pathlib.Path | None) -> "AcceptedChanges":
    """The changes in a file, as of today; none without a file. Raises UsageError for a file that cannot be read."""
    from perfkit.clock import utc_now
    from perfkit.history.accepted import NOTHING_ACCEPTED, AcceptedChanges, read_accepted

    return NOTHING_ACCEPTED if path is None else AcceptedChanges(read_accepted(path), utc_now().date())
