"""What perf_analyzer checks when it has read all options, in its order and with its words."""

import json
import pathlib
from collections.abc import Iterator

from perfkit.perf_analyzer.draft import ABORTED_EXIT_CODE, CommandLineError, Draft, refusal
from perfkit.perf_analyzer.load_option_values import is_file

_LOWEST_PERCENTILE, _HIGHEST_PERCENTILE = 1, 99


def check(draft: Draft) -> None:
    """Raises CommandLineError with the first complaint. Counts the requests of a fixed schedule, in its data."""
    if draft.final_mode == "FixedSchedule":
        _check_fixed_schedule(draft)
    for complaint in _complaints(draft):
        raise refusal(complaint)


def _complaints(draft: Draft) -> Iterator[str]:
    options = draft.options
    if not options.model and draft.service_kind != "dynamic_grpc":
        yield "Failed to parse -m (model name). The value must be specified."
    if draft.concurrency.start == 0:
        yield "The start of the search range must be > 0"
    if draft.rate.start <= 0:
        yield "Failed to parse --request-rate-range. The start of the search range must be > 0."
    if not draft.has_known_protocol:
        yield "Failed to parse -i (protocol). The value should be either HTTP or gRPC."
    is_grpc = options.protocol == "grpc"
    if options.is_streaming and not is_grpc and draft.service_kind != "triton_c_api":
        yield "Streaming is only allowed with gRPC protocol and Triton C API."
    if draft.has_compression and not is_grpc:
        yield "Using compression algorithm is only allowed with gRPC protocol."
    if options.sequences.length_variation_percent < 0:
        yield "Failed to parse --sequence-length-variation. The value must be >= 0.0."
    if options.percentile is not None and not _LOWEST_PERCENTILE <= options.percentile <= _HIGHEST_PERCENTILE:
        yield "Failed to parse --percentile. The value must be -1 for not reporting or in range (0, 100)."
    if options.is_zero_data and options.input_data:
        yield "The -z flag cannot be set when --data-directory is provided."
    if options.is_async and options.is_sync:
        yield "Cannot specify --async and --sync simultaneously."
    if draft.final_mode == "PeriodicConcurrency":
        if not options.is_streaming:
            yield "The --periodic-concurrency-range option requires bi-directional gRPC streaming."
        if not options.export_file:
            yield "Must provide --profile-export-file when using the --periodic-concurrency-range option."
    if draft.parameters and not is_grpc:
        yield "The --request-parameter option is currently only supported by gRPC protocol."
    yield from _complaints_about_search(draft)
    yield from _complaints_about_counts(draft)
    yield from _complaints_about_service(draft)
    if options.collects_metrics and draft.service_kind != "triton":
        yield "Server-side metric collection is only supported with Triton client backend."
    if draft.has_metrics_url and not options.collects_metrics:
        yield "Must specify --collect-metrics when using the --metrics-url option."
    if draft.has_metrics_interval and not options.collects_metrics:
        yield "Must specify --collect-metrics when using the --metrics-interval option."
    if draft.final_mode == "SessionConcurrency" and draft.service_kind != "openai":
        yield "Session concurrency mode is only supported with OpenAI service kind."


def _complaints_about_search(draft: Draft) -> Iterator[str]:
    options, ranges = draft.options, (draft.concurrency, draft.rate)
    is_open = any(one.end == 0 for one in ranges)
    if is_open and options.latency_threshold_ms == 0:
        yield "The end of the search range and the latency limit can not be both 0 (or 0.0) simultaneously"
    if not options.is_binary_search or draft.final_mode == "CustomIntervals":
        return
    if is_open:
        yield "The end of the range can not be 0 (or 0.0) for binary search mode."
    if options.latency_threshold_ms == 0:
        yield "The --latency-threshold cannot be 0 for binary search mode."
    if any(one.end < one.start for one in ranges):
        yield "The end of the range can not be less than start of the range for binary search mode."


def _complaints_about_counts(draft: Draft) -> Iterator[str]:
    options, mode = draft.options, draft.final_mode
    modes = {"Concurrency": (draft.concurrency, "concurrency"), "RequestRate": (draft.rate, "request rate")}
    if mode not in modes:
        return
    load, name = modes[mode]
    if options.warmup_request_count and load.start < load.end:
        yield f"--warmup-request-count not supported with multiple {name} values in one run"
    if options.request_count:
        if not load.start < options.request_count + 1:  # also for a rate that is infinite, or not a number
            yield f"--request-count can not be less than {name}"
        if load.start < load.end:
            yield f"--request-count not supported with multiple {name} values in one run"


def _complaints_about_service(draft: Draft) -> Iterator[str]:
    options = draft.options
    match draft.service_kind:
        case "tfserving":
            if options.protocol != "grpc":
                yield "perf_analyzer supports only grpc protocol for TensorFlow Serving."
            if options.is_streaming:
                yield "perf_analyzer does not support streaming for TensorFlow Serving."
            if options.is_async:
                yield "perf_analyzer does not support async API for TensorFlow Serving."
        case "torchserve" if not options.input_data:
            yield "--input-data should be provided with a json file with input data for torchserve."
        case "triton_c_api":
            if not draft.server_directory:
                yield "--triton-server-path should not be empty when using service-kind=triton_c_api."
            if not draft.model_repository:
                yield "--model-repository should not be empty when using service-kind=triton_c_api."
            if options.is_async and options.is_streaming and options.shared_memory != "none":
                yield (
                    "Cannot use --shared-memory=system or --shared-memory=cuda with --service-kind=triton_c_api and --async and --streaming."
                )
        case "openai":
            if not options.input_data:
                yield "Must supply --input-data for OpenAI service kind."
            if not draft.endpoint:
                yield 'Must supply --endpoint for OpenAI service kind. For example, "v1/chat/completions".'
            if not options.is_async:
                yield "Only async mode is currently supported for OpenAI service-kind"
            if options.batch_size != 1:
                yield "Batching is not currently supported with OpenAI service-kind"
        case "dynamic_grpc":
            if options.is_async:
                yield "Dynamic gRPC client only supports synchronous RPCs at the moment."
            if not options.input_data:
                yield "Must supply --input-data to provide input data stream for streaming Dynamic gRPC service."


def _check_fixed_schedule(draft: Draft) -> None:
    options = draft.options
    if options.request_count:
        raise _aborted(
            "Cannot specify `--request-count` when using `--fixed-schedule`. The request count will be equal to the number of requests in the "
            "input data minus the warmup request count."
        )
    if not options.input_data:
        raise _aborted("When using `--fixed-schedule`, you must provide a dataset using `--input-data`.")
    payloads = 0
    for name in options.input_data:
        if not is_file(name):
            raise _aborted(f"'{name}' is not a file. When using `--fixed-schedule`, all paths passed to --input-data must be files.")
        payloads += _count_payloads(name)
    if payloads == 0:
        raise _aborted("The dataset provided is empty. When using `--fixed-schedule`, the dataset must contain at least one payload.")
    if options.warmup_request_count >= payloads:
        raise _aborted("The warmup request count must be less than the total number of payloads in the dataset.")
    draft.set(request_count=payloads - options.warmup_request_count)


def _count_payloads(name: str) -> int:
    try:
        document = json.loads(pathlib.Path(name).read_bytes(), parse_constant=_refuse_constant)
    except (OSError, ValueError) as error:
        raise _aborted(
            f"the input data of `--fixed-schedule` is no JSON: {error}. Review JSON file for formatting errors: '{name}'"
        ) from None
    if not isinstance(document, dict) or [*document] != ["data"] or not isinstance(document["data"], list):
        raise _aborted(
            f"Input data JSON file must contain an object with a single 'data' member that is an array. Review JSON file: '{name}'"
        )
    return len(document["data"])


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not allowed here")


def _aborted(message: str) -> CommandLineError:
    return CommandLineError(f"Error: {message}", ABORTED_EXIT_CODE)
