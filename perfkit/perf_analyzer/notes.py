"""What is said of a command: what changes in meaning, what is not needed, and messages about its scenario in the words of its options. Pure."""

import re
from collections.abc import Iterator, Mapping

from perfkit.perf_analyzer.options import Options

_HUGE_STABILITY_PERCENT = 100


def notes(options: Options) -> tuple[str, ...]:
    """A sentence for each option whose meaning changes in the command's scenario, or that has none there; each once."""
    return tuple(dict.fromkeys((*_notes_on_load(options), *_notes_on_measurement(options), *_notes_on_requests(options))))


def notes_on_run(options: Options) -> tuple[str, ...]:
    """The same where the command itself runs, which keeps perf_analyzer's sweeps, thresholds and windows."""
    return tuple(dict.fromkeys(_notes_on_requests(options)))


def _notes_on_load(options: Options) -> Iterator[str]:
    if options.load_mode == "request_rate":
        yield (
            "--request-rate-range: in scenarios and results of perfkit run, response times begin at the instant at which a request is due; "
            "perf_analyzer's latency begins when it is sent, which is service_time"
        )
        if options.distribution == "poisson":
            yield "--request-distribution poisson: the arrivals follow workload.seed, 0 by default; perf_analyzer always sends the same ones"
    if options.load_range.end == 0 or options.is_binary_search:
        yield "a search for the highest load under a limit: perfkit run has load.search for rates, which needs no steps and gives an interval"
    if options.max_threads is not None:
        yield "--max-threads: not needed; measure.workers is the number of processes, which perfkit calibrate chooses"
    if options.is_async or options.is_sync:
        yield f"--{'async' if options.is_async else 'sync'}: not needed; one process keeps any number of requests in flight"
    if options.is_mpi:
        yield "--enable-mpi: not needed; several models are a mix, which perfkit perf-analyzer mpiexec … makes of the whole line"


def _notes_on_measurement(options: Options) -> Iterator[str]:
    if options.latency_threshold_ms:
        yield "--latency-threshold (-l): in a scenario it is an slo, and a load above it stays in the results, marked as violated"
        if options.percentile not in (50, 90, 95, 99):
            yield "--latency-threshold (-l): the slo of a scenario limits p50, p90, p95 or p99: without one of these as --percentile it is left out"
    if options.percentile is not None:
        yield "--percentile: perfkit's own results have the average, too"
    if options.stability_percent != 10.0:
        is_huge = options.stability_percent >= _HUGE_STABILITY_PERCENT
        reason = "a large one is not needed" if is_huge else "results of perfkit run do not depend on it"
        yield f"--stability-percentage (-s): {reason}; perfkit tests whether the target is in a steady state"
    if options.max_trials != 10:
        yield "--max-trials (-r): a scenario has measure.repetitions, 3 by default, and measures no further ones until they agree"
    if options.warmup_request_count:
        yield "--warmup-request-count: a scenario's measure.warmup is a time: perfkit perf-analyzer sends the requests in a run before"


def _notes_on_requests(options: Options) -> Iterator[str]:
    if options.request_count and options.load_mode != "fixed_schedule":
        yield "--request-count: throughput is that of the requests' own time; perf_analyzer divides by a longer window"
    if not options.input_data and not options.is_zero_data and options.string_data is None:
        yield (
            "--input-data random: perfkit sends several different requests; perf_analyzer sends one again and again, which flatters caches"
        )
    if options.batch_size > 1 and options.input_data:
        yield "-b with input data: each step of the data is one element of a batch"
    if options.shared_memory != "none":
        yield "--shared-memory: perfkit unregisters its own regions only; perf_analyzer unregisters those of all clients"
    if options.ignored_parameters:
        names = ", ".join(options.ignored_parameters)
        yield f"--request-parameter {names}: not sent, as by perf_analyzer, since its type is not bool, int or string"
    if options.headers and options.protocol == "grpc":
        yield "-H: over gRPC headers are sent as metadata, as perf_analyzer does in spite of its documentation"
    if options.output_format != options.input_format and options.protocol == "http":
        yield f"--output-tensor-format {options.output_format}: answers have the encoding of the requests, {options.input_format}"
    if "json" in (options.input_format, options.output_format) and options.protocol == "grpc":
        yield "--input-tensor-format, --output-tensor-format: over gRPC json means typed contents in perfkit; perf_analyzer has it for HTTP only"
    if options.compression != "none" and options.is_streaming:
        yield "--grpc-compression-algorithm with --streaming: each request has a stream of its own"
    sequences = options.sequences
    if sequences.is_given:
        yield "sequences: one request of a sequence is in flight at a time, as with --serial-sequences"
        if sequences.first_id is None:
            yield "--sequence-id-range: without it ids begin with a random number, so that runs do not meet; perf_analyzer begins with 1"
        if options.shared_memory != "none":
            yield "--shared-memory with sequences: only inputs are shared, since live sequences would write to the same outputs"
    tls = options.tls
    if not tls.is_used and (tls.ca or tls.cert or tls.key):
        yield "--ssl-*: the URL and --ssl-grpc-use-ssl ask for no TLS, so that these options are not used"
    if tls.is_used and not tls.verify:
        yield "--ssl-https-verify-peer, --ssl-https-verify-host: tls.verify: false verifies neither certificate nor name"
    if options.trace.is_given:
        yield "--trace-*, --log-frequency: changed in the server before the load, and no part of a scenario; `traces` explains single requests"


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
    (r": target\.max_answer sets this limit, and the server's answers need more: raise it", ", a limit that only perfkit run has a key for: --print-scenario, and target.max_answer there"),
    (r" and target\.tls\.server_name", ""),
    (r"(this looks like gRPC(?: \(.*\))?): use \S+", r"\1: give -i grpc, and the port of gRPC"),
    (r"(this looks like HTTP(?: \(.*\))?): use \S+", r"\1: leave -i grpc out, or give the port of gRPC"),
    (r"the port speaks TLS: use grpcs://\S+", "the port speaks TLS: give --ssl-grpc-use-ssl"),
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
