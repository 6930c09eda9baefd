"""`perfkit validate`: checks a scenario without sending anything."""

import argparse

from perfkit.cli.exit_code import ExitCode
from perfkit.cli.options import add_scenario_options
from perfkit.text.foreign import one_line


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    add_scenario_options(parser)
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> ExitCode:
    from perfkit.scenario.credentials import resolve_address
    from perfkit.scenario.file import read_cases
    from perfkit.scenario.load import OpenLoadSpec
    from perfkit.target.address import redacted_url

    cases = read_cases(options.scenario, options.settings)
    for case in cases:
        target, load = case.loaded.scenario.target, case.loaded.scenario.load
        for url in target.urls_by_protocol.values() or ("http://127.0.0.1",):
            resolve_address(target, url, case.loaded.folder)
        # only a trace can fail; it needs NumPy, which is slow to import
        if isinstance(load, OpenLoadSpec) and load.open.trace is not None:
            from perfkit.load.load_plan import load_points

            load_points(case.loaded)
    target = cases[0].loaded.scenario.target
    urls = " and ".join(map(redacted_url, target.urls_by_protocol.values()))
    server = urls or f"the bundled server over {' and '.join(target.load_protocols)}"
    number = f"; a sweep over {len(cases)} cases" if cases[0].values else ""
    print(f"{options.scenario}: valid; model {one_line(target.model)} of {one_line(server)}{number}")
    return ExitCode.DONE
