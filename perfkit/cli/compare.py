"""`perfkit compare`: compares results without a verdict."""

import argparse
import pathlib
import sys

from perfkit.cli.exit_code import ExitCode
from perfkit.cli.options import add_results
from perfkit.cli.output import note_unverified, reader_may_leave, write_output
from perfkit.text import write_styled


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    add_results(parser, "a result folder or its result.json, or a profile export or CSV report of perf_analyzer; at least two")
    parser.add_argument("--format", choices=("text", "markdown", "json", "html"), default="text", help="default: text")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE", help="write to this file instead of stdout")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> ExitCode:
    from perfkit.comparison.perf_analyzer_comparison import compare_with_perf_analyzer
    from perfkit.comparison.result_comparison import compare_results
    from perfkit.errors import UsageError
    from perfkit.report.comparison import CAUTIONS, comparison_html, comparison_json, comparison_markdown, comparison_text
    from perfkit.report.terminal import print_status_line
    from perfkit.result.file import read_result
    from perfkit.result.model import Result
    from perfkit.result.perf_analyzer_files import perf_analyzer_kind
    from perfkit.result.perf_analyzer_result import PerfAnalyzerResult, read_perf_analyzer

    if len(options.results) < 2:
        raise UsageError("compare needs at least two results: perfkit compare RESULT RESULT")
    labels = _labels(options.results)
    kinds = [perf_analyzer_kind(path) for path in options.results]
    sides: list[tuple[str, Result | PerfAnalyzerResult]] = [
        (label, read_perf_analyzer(path, kind) if kind else read_result(path)[0])
        for label, path, kind in zip(labels, options.results, kinds, strict=True)
    ]
    results = [(label, side) for label, side in sides if isinstance(side, Result)]
    compared = compare_results(results) if len(results) == len(sides) else compare_with_perf_analyzer(sides)
    note_unverified(path for path, kind in zip(options.results, kinds, strict=True) if kind is None)
    forms = {"text": comparison_text, "markdown": comparison_markdown, "json": comparison_json, "html": comparison_html}
    text = forms[options.format](compared)
    if options.out is None:
        with reader_may_leave():
            write_styled(sys.stdout, text)  # its foreign parts are cleaned by the renderers
    else:
        write_output("--out", options.out, text)
    notes = f", {len(compared.notes)} note{'s' * (len(compared.notes) != 1)}" if compared.notes else ""
    numbers = {caution.partition(":")[0]: sum(side.status == status for side in compared.sides) for status, caution in CAUTIONS.items()}
    cautions = "".join(f", {number} of them {words}" for words, number in numbers.items() if number)
    details = f"{len(compared.sides)} results{cautions}, {len(compared.rows)} figures{notes}"
    print_status_line("complete", details, ExitCode.DONE, "bold red" if cautions else "green")
    return ExitCode.DONE


def _labels(paths: list[pathlib.Path]) -> list[str]:
    """The shortest distinct endings of the paths; the same result given twice has the same label."""
    folders = [path.parent if path.name == "result.json" else path for path in paths]
    resolved = [folder.resolve().parts for folder in folders]
    for length in range(1, max(map(len, resolved))):
        ends = ["/".join(parts[-length:]) for parts in resolved]
        if len(set(ends)) == len(set(resolved)):
            return ends
    return [str(folder) for folder in folders]
