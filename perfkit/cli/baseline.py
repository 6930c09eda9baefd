"""`perfkit baseline`: makes a baseline file from results."""

import argparse
import pathlib

from perfkit.cli.exit_code import ExitCode
from perfkit.cli.options import add_results
from perfkit.cli.output import note_unverified
from perfkit.text import file_name


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    add_results(parser, "a result folder, its result.json, or a baseline file, whose runs are taken over")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE", help="default: baselines/<scenario>.json")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> ExitCode:
    from perfkit.errors import MeasurementError
    from perfkit.gate.baseline import merge_baselines, read_baseline, write_baseline

    parts = [(str(path), read_baseline(path, with_histograms=True)) for path in options.results]
    note_unverified(options.results)
    if faults := [f"{label}: {fault}" for label, part in parts for run in part.runs for fault in run.faults]:
        raise MeasurementError(f"a baseline needs complete, valid and steady runs: {'; '.join(faults)}")
    baseline = merge_baselines(parts)
    path = options.out or pathlib.Path("baselines") / f"{file_name(baseline.name)}.json"
    write_baseline(path, baseline)
    hosts = len(baseline.hosts)
    print(f"{path}: {len(baseline.runs)} run{'s' * (len(baseline.runs) > 1)} on {hosts} host{'s' * (hosts > 1)}")
    return ExitCode.DONE
