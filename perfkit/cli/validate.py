"""`perfkit validate`: checks a scenario without sending anything."""

import argparse

from perfkit.cli.exit_code import ExitCode
from perfkit.cli.scenario_options import add_scenario_options


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    add_scenario_options(parser)
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> ExitCode:
    from perfkit.scenario.file import read_scenario, resolve_headers

    loaded = read_scenario(options.scenario, options.settings)
    resolve_headers(loaded.scenario.target.headers)
    target = loaded.scenario.target
    where = target.url or f"the bundled server over {' and '.join(target.load_protocols)}"
    print(f"{options.scenario}: valid; model {target.model} of {where}")
    return ExitCode.DONE
