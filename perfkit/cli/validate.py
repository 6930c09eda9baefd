"""`perfkit validate`: checks a scenario without sending anything."""

import argparse

from perfkit.cli.exit_code import ExitCode
from perfkit.cli.scenario_options import add_scenario_options


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    add_scenario_options(parser)
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> ExitCode:
    from perfkit.load.load_plan import load_points
    from perfkit.scenario.credentials import resolve_address
    from perfkit.scenario.file import read_cases
    from perfkit.target.address import redacted_url

    cases = read_cases(options.scenario, options.settings)
    for case in cases:
        target = case.loaded.scenario.target
        resolve_address(target, target.url or "http://127.0.0.1", case.loaded.folder)
        load_points(case.loaded)
    target = cases[0].loaded.scenario.target
    where = redacted_url(target.url) if target.url else f"the bundled server over {' and '.join(target.load_protocols)}"
    number = f"; a sweep over {len(cases)} cases" if cases[0].values else ""
    print(f"{options.scenario}: valid; model {target.model} of {where}{number}")
    return ExitCode.DONE
