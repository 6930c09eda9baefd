"""Several perf_analyzer commands that run at the same time, each with a model and one load of its own. Pure."""

import dataclasses
from collections.abc import Sequence

from perfkit.perf_analyzer.options import CommandLineError, Options


def load_values(commands: Sequence[Options], value: float) -> list[float]:
    """The load of each command: a single one has a value of its sweep, and those of a mix have their own."""
    return [value] if len(commands) == 1 else [options.load_range.start for options in commands]


def commands_to_run(commands: Sequence[Options]) -> tuple[list[Options], list[str]]:
    """The commands as they can be measured together, and what changes in them, in sentences.

    The models of a mix end together, so that they have windows of the longest interval, and none of a number of requests.
    """
    if len(commands) == 1:
        return list(commands), []
    interval_ms = max(options.interval_ms for options in commands)
    timed = [dataclasses.replace(one, measurement_mode="time_windows", interval_ms=interval_ms, request_count=0) for one in commands]
    counted = [_counting_option(one) for one in commands if one.measurement_mode == "count_windows" or one.request_count]
    notes = [f"{option}: several models are measured for a time instead, in windows of {interval_ms} ms" for option in counted]
    return timed, list(dict.fromkeys(notes))


def _counting_option(options: Options) -> str:
    if options.load_mode == "fixed_schedule":
        return "--fixed-schedule"
    return "--request-count" if options.request_count else "--measurement-mode count_windows"


_PROCESSES = ("-n", "-np", "-c", "--n")
_WITH_VALUE = (*_PROCESSES, "-H", "-host", "--host", "-x", "-hostfile", "--hostfile", "-wdir", "--wdir", "--bind-to", "--map-by")


def split_commands(words: Sequence[str]) -> list[list[str]]:
    """The arguments of each perf_analyzer, without its name, in order; the first word is `mpiexec`.

    Raises CommandLineError if a part names no program, or several processes of it.
    """
    parts: list[list[str]] = [[]]
    for word in words[1:]:
        if word == ":":
            parts.append([])
        else:
            parts[-1].append(word)
    return [_arguments(part) for part in parts]


def _arguments(part: Sequence[str]) -> list[str]:
    place = 0
    while place < len(part) and part[place].startswith("-"):
        option = part[place]
        if option in _PROCESSES and part[place + 1 : place + 2] != ["1"]:
            raise CommandLineError(
                f"perfkit: mpiexec {option} {' '.join(part[place + 1 : place + 2])}: each model has one process: give -n 1"
            )
        place += 2 if option in _WITH_VALUE else 1
    if place >= len(part):
        raise CommandLineError(
            "perfkit: mpiexec: a part names no program: expected -n 1 perf_analyzer, its options, and ':' before the next"
        )
    return list(part[place + 1 :])
