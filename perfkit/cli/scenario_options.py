"""The options that name a scenario, shared by the commands that read one."""

import argparse
import pathlib


def add_scenario_options(parser: argparse.ArgumentParser) -> None:
    """Adds SCENARIO and --set."""
    parser.add_argument("scenario", type=pathlib.Path, metavar="SCENARIO.yaml")
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a key: a dotted path and a YAML value, such as load.closed.concurrency='[1,8]'; may be repeated",
    )
