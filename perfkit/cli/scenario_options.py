"""The options of all commands that read a scenario."""

import argparse
import pathlib


def add_scenario_options(parser: argparse.ArgumentParser, *, is_optional: bool = False) -> None:
    """Adds SCENARIO and --set; if the scenario is optional and left out, it is None."""
    parser.add_argument("scenario", type=pathlib.Path, metavar="SCENARIO.yaml", nargs="?" if is_optional else None)
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a key of the scenario, such as load.closed.concurrency='[1,8]'; VALUE is YAML; may be repeated",
    )
