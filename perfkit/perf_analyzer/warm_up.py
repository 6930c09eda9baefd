"""The requests of `--warmup-request-count`, as a command of their own, and the schedule that is replayed."""

import dataclasses
import json
import pathlib

from perfkit.perf_analyzer.options import Options


def warm_up_and_rest(options: Options, folder: pathlib.Path) -> tuple[Options, Options]:
    """The command whose requests are the warm-up, and the one that is measured after it.

    Of a fixed schedule the first entries are the warm-up, and those of several files are joined by their times. All entries keep their times
    since the start, and become files in the folder.
    """
    first = options.warmup_request_count
    warm_up = dataclasses.replace(options, request_count=first)
    if options.load_mode != "fixed_schedule" or (not first and len(options.input_data) == 1):
        return warm_up, options
    folder.mkdir(parents=True)
    entries = [entry for name in options.input_data for entry in json.loads(pathlib.Path(name).read_bytes())["data"]]
    if len(options.input_data) > 1:
        entries.sort(key=_time_ms)
    parts = {folder / "warm_up.json": (warm_up, entries[:first]), folder / "rest.json": (options, entries[first:])}
    for file, (_, part) in parts.items():
        file.write_text(json.dumps({"data": part}))
    made = [dataclasses.replace(one, input_data=(str(file),)) for file, (one, _) in parts.items()]
    return made[0], made[1]


def _time_ms(entry: object) -> float:
    """The time of an entry; one without a time comes first, where reading it as a schedule complains."""
    match entry:
        case {"timestamp": [int() | float() as time_ms]} | {"timestamp": int() | float() as time_ms}:
            return time_ms
    return -1.0
