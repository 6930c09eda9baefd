"""Messages about a scenario in the words of the command line, which has no scenario. Pure."""

import re
from collections.abc import Mapping

from perfkit.perf_analyzer.options import Options

_KEYS = {
    "target.url": "-u",
    "target.model": "-m",
    "target.version": "-x",
    "target.headers": "-H",
    "target.compression": "--grpc-compression-algorithm",
    "target.metrics_url": "--metrics-url",
    "target.composing_models": "--bls-composing-models",
    "workload.batch_size": "-b",
    "workload.data": "--input-data",
    "workload.inputs": "--shape",
    "workload.encoding": "--input-tensor-format",
    "workload.parameters": "--request-parameter",
    "sequences.length": "--sequence-length",
    "sequences.live": "--num-of-sequences",
    "sequences.first_id": "--sequence-id-range",
    "sequences.end_id": "--sequence-id-range",
    "shared_memory.output_bytes": "--output-shared-memory-size",
    "shared_memory.kind": "--shared-memory",
    "load.closed.concurrency": "--concurrency-range",
    "load.open.rate": "--request-rate-range",
    "measure.duration": "--measurement-interval",
    "metrics.interval": "--metrics-interval",
}
"""The option that each key of a scenario stands for."""
_TLS = {
    "http": {
        "target.tls.ca": "--ssl-https-ca-certificates-file",
        "target.tls.cert": "--ssl-https-client-certificate-file",
        "target.tls.key": "--ssl-https-private-key-file",
        "target.tls.verify": "--ssl-https-verify-peer",
    },
    "grpc": {
        "target.tls.ca": "--ssl-grpc-root-certifications-file",
        "target.tls.cert": "--ssl-grpc-certificate-chain-file",
        "target.tls.key": "--ssl-grpc-private-key-file",
    },
}
_ADVICE = (
    (r"increase workload\.variants, or disable the cache", "give more --input-data, or disable the cache"),
    (r", or increase measure\.workers", ""),
    (r"workload\.variants, (the inputs' shapes)", r"\1"),
)
"""What a warning advises of a scenario, and what its command can do."""
_SENTENCES = (
    *_ADVICE,
    (r"(?m)^(?:scenario: |the scenario: )+", ""),
    (r"workload\.inputs\.(.+?): (the model's shape is .*): give a size for each -1, such as .*", r"\2: give --shape \1:… with a size for each -1"),
    (r"workload\.inputs: (the server does not say what model .* takes): give each input's datatype and shape, such as .*", r"\1"),
    (r"workload\.inputs\.([^\s,]+?)\.shape\b", r"--shape \1:…"),
    (r", or give workload\.inputs\.\S+, which may be `omit` for an input that the model calls optional", ""),
    (r"\. If it (?:has the model|serves .*?) but does not describe it, give the datatype and shape of each input in workload\.inputs", ""),
    (r"data with timestamps is a schedule: give it as load\.replay\.trace, and remove workload\.data", "data with timestamps is a schedule: add --fixed-schedule"),
    (r" and target\.tls\.server_name", ""),
    (r"target\.headers, such as authorization: Bearer \$\{TOKEN\}", "-H, such as -H 'authorization: Bearer TOKEN'"),
    (r"\bsequences: end_id must be above first_id", "sequences.end_id: the end must be above the start"),
    (r"\braise end_id\b", "raise its end"),
    (r"shared_memory: ", "shared_memory.kind: "),
    (r"(, or|,)( workload\.batch_size) or workload\.variants", r" or\2"),
)  # fmt: skip
"""What is said in other words, before keys become options."""


def in_options(message: str, options: Options) -> str:
    """A message with the command's options in place of the keys of its scenario; keys without an option stay as they are."""
    for pattern, words in _SENTENCES:
        message = re.sub(pattern, words, message)
    message = re.sub(r"(?m)^workloads\[(\d+)\](?:\.|: )", lambda found: f"perf_analyzer {int(found[1]) + 1} of the line: ", message)
    is_grpc = options.protocol == "grpc"
    message = message.replace("Add `stream: {}` to the scenario", f"Add {'--streaming' if is_grpc else '-i grpc --streaming'}")
    plain = "remove --ssl-grpc-use-ssl" if is_grpc else "use http:// in -u"
    message = message.replace("use http:// or grpc:// in target.url", plain)
    words_of = _KEYS | _TLS[options.protocol] | {"load.replay.trace": _file_option(options)}
    return _keys_of(words_of).sub(lambda found: words_of[found[0].partition("[")[0]], message)


def warning_in_options(message: str, options: Options) -> str:
    """A warning about a measurement, with the option that makes its windows longer in the place of advice to measure longer."""
    return in_options(message.replace("measure longer", _longer(options)), options)


def _longer(options: Options) -> str:
    if options.load_mode == "fixed_schedule":
        return "give a longer schedule with --input-data"
    if options.request_count:
        return "raise --request-count"
    return "raise --measurement-request-count" if options.measurement_mode == "count_windows" else "raise --measurement-interval (-p)"


def _file_option(options: Options) -> str:
    return "--input-data" if options.load_mode == "fixed_schedule" else "--request-intervals"


def _keys_of(words_of: Mapping[str, str]) -> re.Pattern[str]:
    """Matches a key, with the index of a value in a list."""
    return re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, words_of))})\b(?:\[\d+\])?")
