"""Options that several commands have, and types of their values."""

import argparse
import pathlib
from collections.abc import Callable


def add_scenario_options(parser: argparse.ArgumentParser, *, is_optional: bool = False) -> None:
    """Adds SCENARIO and --set; if the scenario is optional and left out, it is None."""
    parser.add_argument("scenario", type=_scenario, metavar="SCENARIO.yaml", nargs="?" if is_optional else None)
    add_settings(parser)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Adds --set."""
    text = "override a key of the scenario, such as load.closed.concurrency='[1,8]'; VALUE is YAML; may be repeated"
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE", help=text)


def _scenario(text: str) -> pathlib.Path:
    from perfkit.scenario.shipped import find_scenario

    return find_scenario(text)


def add_results(parser: argparse.ArgumentParser, text: str) -> None:
    """Adds RESULT, one path or more."""
    parser.add_argument("results", nargs="+", type=pathlib.Path, metavar="RESULT", help=text)


def whole_number(lowest: int, highest: int) -> Callable[[str], int]:
    """The type of an option that takes a whole number in a range."""

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and lowest <= int(text) <= highest):
            raise argparse.ArgumentTypeError(f"expected a whole number from {lowest:,} to {highest:,}, found {text!r}")
        return int(text)

    return parse
