"""`perfkit report`: renders the reports of stored results again."""

import argparse
import os
import pathlib
import sys

from perfkit.cli.exit_code import ExitCode
from perfkit.cli.options import add_otlp, add_results
from perfkit.cli.output import note_unverified, reader_may_leave, write_output

_EXPORTS = ("csv", "hgrm", "bencher", "mlflow", "wandb", "otlp")


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    add_results(parser, "a result folder or its result.json, a sweep's folder, or a profile export or CSV report of perf_analyzer")
    parser.add_argument("--table-only", action="store_true", help="for a sweep's folder, render only the table over all cases")
    parser.add_argument("--rank-by", metavar="FIGURE", help="for a sweep's folder: rank its cases by throughput, p99, capacity, energy …")
    where = "for a sweep's folder: rank under this constraint, such as 'p99<50ms' or 'gpu_memory<40GiB'; may be repeated"
    parser.add_argument("--where", action="append", metavar="LIMIT", help=where)
    csv = "write the load points of all results as one CSV file, and no report; - is stdout"
    parser.add_argument("--csv", type=pathlib.Path, metavar="FILE", help=csv)
    hgrm = "write each load point's percentiles as an .hgrm file for HdrHistogram's plotters into this folder, and no report"
    parser.add_argument("--hgrm", type=pathlib.Path, metavar="DIR", help=hgrm)
    bencher = "write the figures of all valid load points with their intervals as Bencher Metric Format into this file, and no report; - is stdout"
    parser.add_argument("--bencher", type=pathlib.Path, metavar="FILE", help=bencher)
    mlflow = "log each result as a run to this MLflow tracking server, such as http://127.0.0.1:5000, and write no report"
    parser.add_argument("--mlflow", type=_given, metavar="URI", help=mlflow)
    wandb = "log each result as a run to this project of Weights & Biases, by default WANDB_PROJECT or perfkit, and write no report"
    project = os.environ.get("WANDB_PROJECT") or "perfkit"
    parser.add_argument("--wandb", type=_wandb_project, nargs="?", const=project, metavar="PROJECT", help=wandb)
    add_otlp(parser, "write no report, and send each result as spans with its figures")
    picture = "write the main chart with the answer above it as {} for slides into this file, and no report; of a single result or sweep"
    parser.add_argument("--png", type=pathlib.Path, metavar="FILE", help=picture.format("PNG"))
    parser.add_argument("--svg", type=pathlib.Path, metavar="FILE", help=picture.format("SVG"))
    parser.add_argument("--quiet", action="store_true", help="print nothing")
    parser.set_defaults(execute=_execute)


def _given(text: str) -> str:
    """Checks that the value of an option is not empty, as that of a variable that is not set."""
    if not text.strip():
        raise argparse.ArgumentTypeError("the value is empty: is a variable not set?")
    return text


def _wandb_project(text: str) -> str:
    """Checks that a text can be the name of a project, and is not the result that was to be logged."""
    from perfkit.result.file import RESULT_FILE
    from perfkit.result.sweep import SWEEP_FILE

    path = pathlib.Path(_given(text))
    if path.is_file() or any((path / name).exists() for name in (RESULT_FILE, SWEEP_FILE)):
        raise argparse.ArgumentTypeError(f"{text} is a result, and the option takes a project: give results first, or --wandb=PROJECT")
    if "/" in text:
        raise argparse.ArgumentTypeError(f"expected the name of a project, found {text}; a team is named by WANDB_ENTITY")
    return text


def _execute(options: argparse.Namespace) -> ExitCode:
    from perfkit.errors import UsageError
    from perfkit.report.run import write_reports
    from perfkit.result.perf_analyzer_files import perf_analyzer_kind
    from perfkit.result.sweep import SWEEP_FILE, result_folders

    is_sweep = {path: (path / SWEEP_FILE).is_file() for path in options.results}
    if options.rank_by or options.where:
        for path in (path for path in options.results if not is_sweep[path]):
            raise UsageError(f"{path}: --rank-by and --where rank the cases of a sweep, and this is not a sweep's folder")
    if options.png or options.svg:
        return _draw_pictures(options)
    if any(getattr(options, name) for name in _EXPORTS):
        return _export(options)
    for path in options.results:
        written = []
        if (kind := perf_analyzer_kind(path)) is not None:
            from perfkit.report.perf_analyzer import write_perf_analyzer_report

            written += write_perf_analyzer_report(path, kind)
        elif not options.table_only:
            for folder in result_folders(path):
                written += write_reports(folder)
        if is_sweep[path]:
            from perfkit.report.sweep import write_sweep_report

            written += write_sweep_report(path, rank_by=options.rank_by, where=options.where)
        if not options.quiet:
            note_unverified([path])
            print("\n".join(map(str, written)))
    return ExitCode.DONE


def _draw_pictures(options: argparse.Namespace) -> ExitCode:
    """Writes the files of --png and --svg."""
    from perfkit.errors import UsageError
    from perfkit.report.matplotlib_charts import save_pictures

    if len(options.results) > 1:
        raise UsageError("--png and --svg draw one picture: give a single result or sweep")
    if options.table_only or options.rank_by or options.where or any(getattr(options, name) for name in _EXPORTS):
        exports = ", ".join(f"--{name}" for name in _EXPORTS)
        raise UsageError(f"--png and --svg draw a result as it is: remove --table-only, --rank-by, --where, {exports}")
    files = {suffix: file for suffix, file in ((".png", options.png), (".svg", options.svg)) if file is not None}
    for suffix, file in files.items():
        if file.suffix != suffix:
            raise UsageError(f"--{suffix[1:]} {file}: expected a name that ends in {suffix}")
    if not options.quiet:
        note_unverified(options.results)
    save_pictures(options.results[0], list(files.values()))
    if not options.quiet:
        print("\n".join(map(str, files.values())))
    return ExitCode.DONE


def _export(options: argparse.Namespace) -> ExitCode:
    """Writes the files of --csv, --hgrm and --bencher, and sends to the programs that the other options name.

    With several results, the histograms of each have their own folder.
    """
    from perfkit.errors import UsageError
    from perfkit.report.export import bencher_json, percentile_distributions, points_csv
    from perfkit.result.sweep import result_folders

    if options.table_only or options.rank_by or options.where:
        given = " and ".join(f"--{name}" for name in _EXPORTS if getattr(options, name))
        raise UsageError(f"{given}: results are exported as they are: remove --table-only, --rank-by and --where")
    on_stdout = [f"--{name}" for name in ("csv", "bencher") if str(getattr(options, name)) == "-"]
    if len(on_stdout) > 1:
        raise UsageError(f"{' and '.join(on_stdout)}: one format alone goes to stdout: give a file for the other")
    folders = [folder for path in options.results for folder in result_folders(path)]
    written: list[pathlib.Path | str] = []
    if not options.quiet:
        note_unverified(options.results)
    if options.hgrm:
        for number, folder in enumerate(folders, 1):
            place = options.hgrm / f"{number:0{len(str(len(folders)))}}" if len(folders) > 1 else options.hgrm
            files = {place / name: text for name, text in percentile_distributions(folder).items()}
            try:
                place.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UsageError(f"--hgrm {place}: cannot be written: {error.strerror}") from None
            for file, text in files.items():
                write_output("--hgrm", file, text)
            written += files
    for option, export in (("csv", points_csv), ("bencher", bencher_json)):
        file = getattr(options, option)
        if file and str(file) == "-":
            with reader_may_leave():
                sys.stdout.write(export(folders))
        elif file:
            write_output(f"--{option}", file, export(folders))
            written.append(file)
    if options.mlflow:
        from perfkit.report.mlflow_export import log_results

        written += log_results(folders, options.mlflow)
    if options.wandb:
        from perfkit.report.wandb_export import log_runs

        written += log_runs(folders, options.wandb)
    if options.otlp:
        from perfkit.report.otlp_spans import send_results

        written += send_results(folders, options.otlp)
    if not options.quiet:
        print("\n".join(map(str, written)), end="\n" if written else "", file=sys.stderr if on_stdout else sys.stdout)
    return ExitCode.DONE
