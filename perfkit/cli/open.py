"""`perfkit open`: shows the page of a result, a sweep, a gate or a plan in the browser."""

import argparse
import pathlib

from perfkit.cli.exit_code import ExitCode
from perfkit.errors import UsageError

_FIRST = ("report.html", "gate.html", "plan.html", "plan/plan.html")


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    what = "a result folder, a file of one, or a page; default: the newest folder with a page where results go"
    parser.add_argument("path", type=pathlib.Path, nargs="?", metavar="RESULT", help=what)
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> ExitCode:
    import webbrowser

    page = page_of(options.path) if options.path is not None else _newest()
    print(page)
    if not webbrowser.open(page.resolve().as_uri()):
        raise UsageError(
            f"{page}: no browser was found: open this file in one, also on another machine, as it is one file that needs no network"
        )
    return ExitCode.DONE


def page_of(path: pathlib.Path) -> pathlib.Path:
    """The page that shows what is stored at a path; raises UsageError if there is none."""
    if path.suffix == ".html" and path.is_file():
        return path
    if not path.exists():
        raise UsageError(f"{path}: no such file or folder")
    folder = path if path.is_dir() else path.parent
    pages = [folder / name for name in _FIRST if (folder / name).is_file()] or sorted(folder.glob("*.html"))
    if not pages:
        raise UsageError(f"{folder}: there is no page; `perfkit report {folder}` writes that of a result, and --html FILE that of a gate")
    return pages[0]


def _newest() -> pathlib.Path:
    from perfkit.result.output_folder import results_folder

    results = results_folder()
    pages = [page for name in _FIRST for page in results.glob(f"*/{name}")]
    if not pages:
        raise UsageError(f"{results}/ has no result with a page: name the folder of a result")
    return max(pages, key=lambda page: page.stat().st_mtime_ns)
