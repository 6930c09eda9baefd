"""`perfkit validate`: checks a scenario without sending anything."""

import argparse
from typing import TYPE_CHECKING

from perfkit.cli.exit_code import ExitCode
from perfkit.cli.options import add_scenario_options
from perfkit.text import one_line

if TYPE_CHECKING:
    from perfkit.scenario.target import Target


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    add_scenario_options(parser)
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> ExitCode:
    from perfkit.scenario.credentials import resolve_replicas
    from perfkit.scenario.file import read_cases
    from perfkit.scenario.load import SearchLoadSpec

    cases = read_cases(options.scenario, options.settings)
    for case in cases:
        for loaded in case.loaded.workloads():
            target = loaded.scenario.target
            for urls in target.urls_by_protocol.values() or (("http://127.0.0.1",),):
                resolve_replicas(target, urls, loaded.folder)
            # only a trace can fail; it needs NumPy, which is slow to import
            if loaded.scenario.has_trace:
                from perfkit.load.point import load_points

                load_points(loaded)
    first = cases[0].loaded.scenario
    may_be_gated = first.workloads is None and not isinstance(first.load, SearchLoadSpec)  # a gate compares one workload at given loads
    described = [_model_and_server(plain.target, may_be_gated=may_be_gated) for plain in first.plain_scenarios()]
    if first.workloads is not None:
        described = [f"{entry.name}: {one}" for entry, one in zip(first.workloads, described, strict=True)]
    number = f"; a sweep over {len(cases)} cases" if cases[0].values else ""
    print(f"{options.scenario}: valid; {one_line('; '.join(described))}{number}")
    return ExitCode.DONE


def _model_and_server(target: "Target", *, may_be_gated: bool) -> str:
    from perfkit.target.address import redacted_url

    servers = " and ".join(", ".join(map(redacted_url, urls)) for urls in target.urls_by_protocol.values())
    protocols = " and ".join(target.load_protocols)
    if target.command is not None:
        return f"model {target.model} of `{target.command}` {f'at {servers}' if servers else f'over {protocols}'}"
    if not servers and may_be_gated:
        return f"model {target.model} over {protocols}; a run without target.url starts the bundled server, a gate has its own targets"
    return f"model {target.model} of {servers or f'the bundled server over {protocols}'}"
