"""Options that several commands have, types of their values, the file of accepted changes, and what `--resume` takes from a folder."""

import argparse
import pathlib
import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from perfkit import digits
from perfkit.errors import UsageError

if TYPE_CHECKING:
    from perfkit.history.accepted import AcceptedChanges
    from perfkit.result.model import Result
    from perfkit.result.sweep import SweepDocument
    from perfkit.scenario.file import Case, LoadedScenario
    from perfkit.telemetry.messages import PublishConfig


def add_scenario_options(parser: argparse.ArgumentParser, *, is_optional: bool = False) -> None:
    """Adds SCENARIO and --set; if the scenario is optional and left out, it is None."""
    parser.add_argument("scenario", type=_scenario, metavar="SCENARIO.yaml", nargs="?" if is_optional else None)
    add_settings(parser)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Adds --set."""
    text = "override a key of the scenario, such as load.closed.concurrency='[1,8]'; VALUE is YAML; may be repeated"
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE", help=text)


def default_place(name: str) -> str:
    """What an option's help says of the folder without it."""
    return f"default: reports/{name}-<UTC time>, in perfkit's own checkout results/…"


def _scenario(text: str) -> pathlib.Path:
    from perfkit.scenario.file import find_scenario

    return find_scenario(text)


def command_that_continues(options: argparse.Namespace, folder: pathlib.Path, *also: str) -> str:
    """The command line of this call, to be entered again: it continues in its result folder. Secrets in it are `<redacted>`.

    `also` are words that it needs, unless they were given.
    """
    missing = [word for word in also if word not in map(str, options.arguments)]
    words = [*shown_words(options), *([] if options.out else ["--out", str(folder)]), *missing]
    return f"{shlex.join(words)}{secrets_hint(options)}"


def secrets_hint(options: argparse.Namespace) -> str:
    """What follows a command of `shown_words` that cannot be entered as it is; empty without secrets."""
    return "" if shown_words(options)[1:] == list(map(str, options.arguments)) else " (with the secrets in place of <redacted>)"


def shown_words(options: argparse.Namespace) -> list[str]:
    """The words of this call's command line; secrets in them are `<redacted>`."""
    from perfkit.scenario.credentials import shown_setting
    from perfkit.target.address import redacted_url

    def shown(word: str) -> str:
        option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        return f"{option}{equals}{shown_setting(value) if value in options.settings else redacted_url(value) if '://' in value else value}"

    return ["perfkit", *map(shown, map(str, options.arguments))]


def add_ready_timeout(parser: argparse.ArgumentParser, server: str) -> None:
    """Adds --ready-timeout, for a server in these words."""
    text = f"how long {server} has until its model is ready; default: the scenario's target.ready_within, or 60s"
    parser.add_argument("--ready-timeout", type=positive_duration_ns, metavar="TIME", help=text)


def add_otlp(parser: argparse.ArgumentParser, what: str) -> None:
    """Adds --otlp; `what` says what is sent."""
    text = f"{what} to the OpenTelemetry receiver at this URL, such as http://127.0.0.1:4318, over OTLP/HTTP"
    parser.add_argument("--otlp", type=_http_url, metavar="URL", help=text)


def publish_at(options: argparse.Namespace) -> "PublishConfig | None":
    """Where --otlp, and of a run --prometheus, say that live metrics go; None without them."""
    listen, url = getattr(options, "prometheus", None), options.otlp
    if not (listen or url):
        return None
    from perfkit.telemetry.messages import PublishConfig

    return PublishConfig(listen, url or "")


def _http_url(text: str) -> str:
    """Checks that a text is the URL of an HTTP server."""
    if not text.startswith(("http://", "https://")):
        from perfkit.target.address import redacted_url

        raise argparse.ArgumentTypeError(f"expected a URL such as http://127.0.0.1:4318, found {redacted_url(text)[:100]!r}")
    return text


def add_results(parser: argparse.ArgumentParser, text: str) -> None:
    """Adds RESULT, one path or more."""
    parser.add_argument("results", nargs="+", type=pathlib.Path, metavar="RESULT", help=text)


def whole_number(lowest: int, highest: int) -> Callable[[str], int]:
    """The type of an option that takes a whole number in a range."""

    def parse(text: str) -> int:
        number = digits.whole_number(text, highest)
        if number is None or number < lowest:
            raise argparse.ArgumentTypeError(f"expected a whole number from {lowest:,} to {highest:,}, found {text[:100]!r}")
        return number

    return parse


def positive_duration_ns(text: str) -> int:
    """The type of an option that takes a time above zero, such as 90s, in nanoseconds."""
    from perfkit.units import parse_duration_ns

    try:
        if (value_ns := parse_duration_ns(text)) > 0:
            return value_ns
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    raise argparse.ArgumentTypeError(f"expected a time above zero, found {text!r}")


def add_accepted(parser: argparse.ArgumentParser) -> None:
    """Adds --accepted."""
    parser.add_argument(
        "--accepted",
        type=pathlib.Path,
        metavar="FILE",
        help="known and accepted changes, from `perfkit gate accept`; default: perfkit-accepted.yaml beside the scenario or here, if there is one",
    )


def find_accepted_file(options: argparse.Namespace, scenario: pathlib.Path | None = None) -> pathlib.Path | None:
    """The file that `--accepted` names, otherwise the one beside the scenario or in the current folder; None if there is none."""
    from perfkit.history.accepted import ACCEPTED_FILE

    places = [folder / ACCEPTED_FILE for folder in ([] if scenario is None else [scenario.parent]) + [pathlib.Path()]]
    named: pathlib.Path | None = options.accepted
    return named or next((place for place in places if place.exists()), None)


def read_accepted_changes(path: pathlib.Path | None) -> "AcceptedChanges":
    """The changes in a file, as of today; none without a file. Raises UsageError for a file that cannot be read."""
    from perfkit.clock import utc_now
    from perfkit.history.accepted import NOTHING_ACCEPTED, AcceptedChanges, read_accepted

    return NOTHING_ACCEPTED if path is None else AcceptedChanges(read_accepted(path), utc_now().date())


def add_resume(parser: argparse.ArgumentParser, of: str = "load points that an interrupted or killed run") -> None:
    """Adds --resume, for measurements in these words."""
    help_text = f"take the {of} has measured from --out, and measure only the rest"
    parser.add_argument("--resume", "--continue", action="store_true", dest="resume", help=help_text)


def add_budget(parser: argparse.ArgumentParser) -> None:
    """Adds --budget, the time that a search is given in addition."""
    text = "with --resume: give the search in --out, interrupted or ended undecided, at least this much more time, such as 10m, and load.search.max_probes more probes"
    parser.add_argument("--budget", type=positive_duration_ns, metavar="TIME", help=text)


def check_resume(options: argparse.Namespace) -> None:
    """Raises UsageError for --resume without a folder."""
    if options.resume and options.out is None:
        raise UsageError("--resume needs --out DIR, the folder to continue in")


def complete_result(loaded: "LoadedScenario", options: argparse.Namespace) -> "Result | None":
    """The result in the folder that --resume would continue in, if it is complete already; raises ResultError for one of another scenario."""
    if not options.resume:
        return None
    from perfkit.result.model import Result
    from perfkit.result.unfinished import find_unfinished
    from perfkit.scenario.file import scenario_document

    adds_time = options.budget is not None
    found = find_unfinished(options.out, scenario_document(loaded.scenario), adds_time=adds_time)
    return found if isinstance(found, Result) and not adds_time else None


def whole_points(folder: pathlib.Path, sweep: "SweepDocument", cases: "Sequence[Case]", indices: Sequence[int]) -> dict[int, int]:
    """How many load points each of these cases of a sweep has to continue after, by index.

    Raises ResultError if one of them is of another scenario, before any load is sent.
    """
    from perfkit.result.unfinished import find_unfinished
    from perfkit.result.whole_points import UnfinishedResult
    from perfkit.scenario.file import scenario_document

    found = {
        index: find_unfinished(folder / sweep.cases[index].folder, scenario_document(cases[index].loaded.scenario)) for index in indices
    }
    return {index: len(one.points) if isinstance(one, UnfinishedResult) else 0 for index, one in found.items()}
