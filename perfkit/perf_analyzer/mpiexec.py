"""The command line with which Model Analyzer measures several models at once: `mpiexec … -n 1 perf_analyzer … : -n 1 perf_analyzer …`."""

from collections.abc import Sequence

from perfkit.perf_analyzer.command_line import CommandLineError

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
