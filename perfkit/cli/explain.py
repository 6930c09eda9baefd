"""`perfkit explain`: says how each figure of a result came about, and where the time of traced requests went."""

import argparse
import sys

from perfkit.cli.exit_code import ExitCode
from perfkit.cli.options import add_results
from perfkit.cli.output import note_unverified, reader_may_leave
from perfkit.text import write_styled


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    add_results(parser, "a result folder or its result.json, or a sweep's folder")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> ExitCode:
    from perfkit.report.terminal_summary import explanation_text
    from perfkit.result.file import read_result
    from perfkit.result.sweep import result_folders

    folders = [folder for path in options.results for folder in result_folders(path)]
    texts = []
    for folder in folders:
        result, _ = read_result(folder)
        heading = [f"{folder}", ""] if len(folders) > 1 else []
        texts.append("\n".join([*heading, explanation_text(result)]))
    note_unverified(options.results)
    with reader_may_leave():
        write_styled(sys.stdout, "\n".join(texts))
    return ExitCode.DONE
