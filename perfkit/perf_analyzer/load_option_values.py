"""What the values of options for load and data stand for: each function sets fields of a draft, or refuses the value."""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import perfkit
from perfkit.perf_analyzer.draft import CommandLineError, Draft, refusal
from perfkit.perf_analyzer.number_text import read_double, read_float, read_int, read_int_or_zero, read_unsigned
from perfkit.perf_analyzer.options import LoadRange

Setter: TypeAlias = Callable[[Draft, str], None]
"""Sets what an option's value stands for. Raises CommandLineError, NotANumberError and OutOfRangeError."""


def number(field: str, least: int, complaint: str) -> Setter:
    """Sets a field to a whole number that is at least so large."""

    def set_number(draft: Draft, text: str) -> None:
        value = read_int(text)
        if value < least:
            raise refusal(f"Failed to parse {complaint}")
        draft.set(**{field: value})

    return set_number


def choice(field: str, flag: str, choices: Mapping[str, Any], advice: str) -> Setter:
    """Sets a field to what one of several words stands for."""

    def set_choice(draft: Draft, text: str) -> None:
        if text not in choices:
            raise refusal(f"Failed to parse {flag}. Unsupported type provided: '{text}'. {advice}")
        draft.set(**{field: choices[text]})

    return set_choice


def text(field: str) -> Setter:
    """Sets a field to the value itself."""
    return lambda draft, value: draft.set(**{field: value})


def concurrency_limit(end: Literal["start", "end"]) -> Setter:
    """Sets one end of the range of concurrencies."""

    def set_limit(draft: Draft, value: str) -> None:
        draft.concurrency = dataclasses.replace(draft.concurrency, **{end: read_unsigned(value)})

    return set_limit


def concurrency_range(draft: Draft, value: str) -> None:
    """`start:end:step` of whole numbers."""
    draft.concurrency = _range(value, draft.concurrency, read_unsigned, "--concurrency-range")


def rate_range(draft: Draft, value: str) -> None:
    """`start:end:step` of numbers."""
    draft.rate = _range(value, draft.rate, read_double, "--request-rate-range")


def _range(value: str, before: LoadRange, read: Callable[[str], float], flag: str) -> LoadRange:
    parts = value.split(":")
    if len(parts) > 3:
        raise refusal(f"Failed to parse {flag}. The value does not match <start:end:step>.")
    values = [read(part) for part in parts]
    return LoadRange(*values, *(before.start, before.end, before.step)[len(values) :])


def periodic_range(_: Draft, value: str) -> None:
    """Checks the range of a periodic concurrency, which perfkit does not have."""
    flag = "--periodic-concurrency-range"
    if ":" not in value:
        raise refusal(f"Failed to parse {flag}. Both <start> and <end> values must be provided.")
    given = _range(value, LoadRange(), read_unsigned, flag)
    if given.step == 0:
        raise refusal(f"Failed to parse {flag}. The <step> value must be > 0.")
    if given.start > given.end:
        raise refusal(f"Failed to parse {flag}. The <start> must be <= <end>.")
    if (given.end - given.start) % given.step:
        raise refusal(f"Failed to parse {flag}. The <step> value must be a factor of the range size (<end> - <start>).")


def session_concurrency(_: Draft, value: str) -> None:
    """Checks the number of sessions, which perfkit does not have."""
    if read_unsigned(value) == 0:
        raise refusal("Failed to parse --session-concurrency. Session concurrency must be > 0.")


def request_period(_: Draft, value: str) -> None:
    """Checks the period of a periodic concurrency, which perfkit does not have."""
    if read_int(value) <= 0:
        raise refusal("Failed to parse --request-period. The value must be > 0")


def stability(draft: Draft, value: str) -> None:
    """The percentage by which windows may differ."""
    percent = read_float(value)
    if not percent >= 0:
        raise refusal("Failed to parse --stability-percentage (-s). The value must be >= 0.0.")
    draft.set(stability_percent=percent)


def percentile(draft: Draft, value: str) -> None:
    """A percentile, or -1 for the average."""
    given = read_int_or_zero(value)
    draft.set(percentile=None if given == -1 else given)


def request_count(draft: Draft, value: str) -> None:
    """The number of requests; the first one given counts."""
    count = read_int(value)
    if count <= 0:
        raise refusal("Failed to parse --request-count. The value must be > 0.")
    draft.set(request_count=draft.options.request_count or count)


def shape(draft: Draft, value: str) -> None:
    """An input's `name:1,2,3`, split at the last colon."""
    name, colon, dimensions = value.rpartition(":")
    if not colon:
        raise refusal("Failed to parse --shape. There must be a colon after input name.")
    sizes = []
    for part in dimensions.split(","):
        sizes.append(read_int(part, bits=64))
        if sizes[-1] <= 0:
            raise refusal("Failed to parse --shape. The dimensions of input tensor must be > 0.")
    draft.set(shapes={**draft.options.shapes, name: tuple(sizes)})


def input_data(draft: Draft, value: str) -> None:
    """A file or folder of input data, or how it is generated."""
    if is_file(value) or _is_folder(value):
        data_path(draft, value)
    elif value == "zero":
        draft.set(is_zero_data=True)
    elif value != "random":
        advice = "The available options are 'zero', 'random', path to a directory, or a json file."
        raise refusal(f"Failed to parse --input-data. Unsupported type provided: '{value}'. {advice}")


def data_path(draft: Draft, value: str) -> None:
    """A file or folder of input data, which need not exist."""
    draft.set(input_data=(*draft.options.input_data, value))


def intervals_file(draft: Draft, value: str) -> None:
    """A file with the intervals between requests."""
    if not is_file(value):
        raise refusal("Failed to parse --request-intervals. The value must be a valid file path")
    draft.set(intervals_file=value)


def distribution(draft: Draft, value: str) -> None:
    """How intervals between requests are distributed."""
    if value not in ("poisson", "constant"):
        advice = "Choices are 'posson' or 'constant'."  # with perf_analyzer's spelling
        raise refusal(f"Failed to parse --request-distribution. Unsupported type provided: '{value}'. {advice}")
    draft.set(distribution=value)


def print_version(_: Draft) -> None:
    """Ends the parser with the version, like an error with exit code 0."""
    raise CommandLineError(f"Perf Analyzer Version {perfkit.__version__} (perfkit)", 0)


def sequence_length(draft: Draft, value: str) -> None:
    """The steps of a sequence; the default if it is not positive."""
    length = read_int(value)
    draft.set_sequences(is_length_given=True, **({"length": length} if length > 0 else {}))
    if length <= 0:
        draft.warn("WARNING: The sequence length must be > 0. Perf Analyzer will use default value if it is measuring on sequence model.")


def length_variation(draft: Draft, value: str) -> None:
    """By how many percent lengths of sequences differ."""
    draft.set_sequences(length_variation_percent=read_double(value))


def live_sequences(draft: Draft, value: str) -> None:
    """How many sequences are live in a rate mode."""
    live = read_int(value)
    if live <= 0:
        raise refusal("Failed to parse --num-of-sequences. The value must be > 0.")
    draft.set_sequences(live=live)


def sequence_ids(draft: Draft, value: str) -> None:
    """`start:end` of the sequences' ids."""
    parts = value.split(":")
    if len(parts) > 2:
        raise refusal("Failed to parse --sequence-id-range. The value does not match <start:end>.")
    first, *rest = map(read_int, parts)
    if first < 0 or any(end < 0 for end in rest):
        raise refusal("Failed to parse --sequence-id-range. The range values must be >= 0.")
    if rest and first > rest[0]:
        raise refusal("Failed to parse --sequence-id-range. The 'end' value must be greater than 'start' value.")
    end_id = rest[0] if rest else draft.options.sequences.end_id
    draft.set_sequences(first_id=max(first, 1), end_id=end_id)
    if first == 0:
        draft.warn(
            "WARNING: using an invalid start sequence id. Perf Analyzer will use default value if it is measuring on sequence model."
        )


def export_file(draft: Draft, value: str) -> None:
    """A path that must not exist."""
    if is_file(value) or _is_folder(value):
        raise refusal("Failed to parse --profile-export-file. Path must not already exist.")
    draft.set(export_file=value)


def is_file(name: str) -> bool:
    """Whether it is an existing file, and no folder or device."""
    return name != "" and pathlib.Path(name).is_file()


def _is_folder(name: str) -> bool:
    return name != "" and pathlib.Path(name).is_dir()
