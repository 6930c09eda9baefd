"""`perfkit baseline`: makes a baseline file from results."""

import argparse
import pathlib

from perfkit.cli.exit_code import ExitCode
from perfkit.cli.options import add_results
from perfkit.cli.output import note_unverified
from perfkit.text.foreign import file_name


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    add_results(parser, "a result folder, its result.json, or a baseline file, whose runs are taken over")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE", help="default: baselines/<scenario>.json")
    control = "a verdict of `perfkit gate --control N`, which contains the variation between runs of one server"
    parser.add_argument("--control", type=pathlib.Path, metavar="VERDICT", help=control)
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> ExitCode:
    from perfkit.errors import MeasurementError, UsageError
    from perfkit.gate.baseline import ControlVariance, merge_baselines, read_baseline, write_baseline
    from perfkit.gate.folder import read_verdict
    from perfkit.gate.stored_comparison import control_variances

    parts = [(str(path), read_baseline(path, with_histograms=True)) for path in options.results]
    note_unverified(options.results)
    if faults := [f"{label}: {fault}" for label, part in parts for run in part.runs for fault in run.faults]:
        raise MeasurementError(f"a baseline needs complete, valid and steady runs: {'; '.join(faults)}")
    baseline = merge_baselines(parts)
    if options.control is not None:
        variances = control_variances(read_verdict(options.control).control)
        if not variances:
            raise UsageError(f"--control {options.control}: this verdict has no control pairs; run `perfkit gate … --control 12`")
        control = tuple(
            ControlVariance(metric=metric, load_point=load_point, variance=variance, degrees_of_freedom=df)
            for (metric, load_point), (variance, df) in variances.items()
        )
        baseline = baseline.model_copy(update={"control": control})
    path = options.out or pathlib.Path("baselines") / f"{file_name(baseline.name)}.json"
    write_baseline(path, baseline)
    hosts = len(baseline.hosts)
    print(f"{path}: {len(baseline.runs)} run{'s' * (len(baseline.runs) > 1)} on {hosts} host{'s' * (hosts > 1)}")
    return ExitCode.DONE
