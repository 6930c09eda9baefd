"""The options that name a scenario, shared by the commands that read one."""

import argparse
import pathlib


def add_scenario_options(parser: argparse.ArgumentParser, *, is_optional: bool = False) -> None:
    """Adds SCENARIO and --set; an optional scenario that is not given is None."""
    parser.add_argument("scenario", type=pathlib.Path, metavar="SCENARIO.yaml", nargs="?" if is_optional else None)
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a key: a dotted path and a YAML value, such as load.closed.concurrency='[1,8]'; may be repeated",
    )
