"""The requests of `--warmup-request-count`, as a command of their own."""

import dataclasses
import json
import pathlib

from perfkit.perf_analyzer.options import Options


def warm_up_and_rest(options: Options, folder: pathlib.Path) -> tuple[Options, Options]:
    """The command whose requests are the warm-up, and the one that is measured after it.

    Of a fixed schedule the first entries are the warm-up. Both parts keep their times since the start, and become files in the folder.
    """
    warm_up = dataclasses.replace(options, request_count=options.warmup_request_count)
    if options.load_mode != "fixed_schedule" or not options.warmup_request_count or len(options.input_data) > 1:
        return warm_up, options
    folder.mkdir(parents=True)
    entries = json.loads(pathlib.Path(options.input_data[0]).read_bytes())["data"]
    first = options.warmup_request_count
    parts = {folder / "warm_up.json": (warm_up, entries[:first]), folder / "rest.json": (options, entries[first:])}
    for file, (_, part) in parts.items():
        file.write_text(json.dumps({"data": part}))
    made = [dataclasses.replace(one, input_data=(str(file),)) for file, (one, _) in parts.items()]
    return made[0], made[1]
