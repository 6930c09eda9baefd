"""What a scenario with sequences or streams may not have beside them."""

from perfkit.scenario.load import ClosedLoadSpec, LoadSpec, OpenLoadSpec, ReplayLoadSpec
from perfkit.scenario.sequences import Sequences, Stream
from perfkit.scenario.slo import Slo
from perfkit.scenario.target import Target
from perfkit.scenario.workload import Check, SharedMemorySpec, Workload


def check_sequences(sequences: Sequences, load: LoadSpec, workload: Workload, shared_memory: SharedMemorySpec | None) -> None:
    """Raises ValueError if sequences do not fit the load or the workload, or have too few ids for those that are live at once."""
    if isinstance(load, ReplayLoadSpec):
        raise ValueError("load.replay sends recorded requests one by one, also those of sequences: remove sequences")
    if own := [name for name in ("sequence_id", "sequence_start", "sequence_end") if name in workload.parameters]:
        raise ValueError(f"workload.parameters.{own[0]} is set by sequences: remove it")
    if workload.data is not None and workload.batch_size > 1:
        raise ValueError("workload.batch_size: with data, each step of a sequence is one step of its stream: set it to 1")
    if shared_memory is not None and shared_memory.outputs:
        raise ValueError("the sequences that are live at once would share their outputs' memory: set shared_memory.outputs to false")
    if isinstance(load, ClosedLoadSpec):
        live, concurrency = sequences.live, load.closed.levels
        if live is not None and concurrency != (live,):
            found = f"found {live} beside load.closed.concurrency {list(concurrency)}"
            raise ValueError(f"sequences.live: a closed loop has as many live sequences as its concurrency: remove live; {found}")
        if sequences.think_time_ns:
            raise ValueError("sequences.think_time is for open loops: give load.closed.think_time, which lies before each step")
    if (ids := sequences.id_count) is not None:
        _check_ids(ids, sequences, load)


def _check_ids(ids: int, sequences: Sequences, load: LoadSpec) -> None:
    if isinstance(load, ClosedLoadSpec):
        key, live = "load.closed.concurrency", max(load.closed.levels)
    elif sequences.live is not None:
        key, live = "sequences.live", sequences.live
    else:
        most = load.open.max_in_flight if isinstance(load, OpenLoadSpec) else None
        if most is None:
            raise ValueError(
                "sequences.end_id: each arrival starts a sequence: give sequences.live, or the most as load.open.max_in_flight"
            )
        key, live = "load.open.max_in_flight", most
    if live > ids:
        raise ValueError(
            f"sequences.end_id: {ids:,} ids are too few for the {live:,} live sequences of {key}: raise end_id, or lower {key}"
        )


def check_stream(
    stream: Stream,
    target: Target,
    workload: Workload,
    sequences: Sequences | None,
    shared_memory: SharedMemorySpec,
    check: Check,
    slo: Slo | None,
) -> None:
    """Raises ValueError if requests on streams do not fit the protocol, or what they carry or have checked cannot be streamed over it."""
    if stream.requests_per_stream > 1 and "http" in target.load_protocols:
        raise ValueError("stream.requests_per_stream: over HTTP each request has a stream of its own: use gRPC, or 1")
    if stream.requests_per_stream > 1 and target.compression != "none":
        raise ValueError(
            "stream.requests_per_stream: requests that share a stream cannot be compressed: remove target.compression, or use 1"
        )
    if "http" not in target.load_protocols:
        return
    if target.compression != "none":
        raise ValueError("stream: event streams take no compressed requests: use gRPC, or remove target.compression")
    if sequences is not None or shared_memory is not None:
        raise ValueError("stream: event streams have neither sequences nor shared memory: use gRPC")
    if stream.body == "generate":
        if workload.batch_size > 1:
            raise ValueError("stream: generate_stream takes no batches: use gRPC, or workload.batch_size: 1")
        if workload.outputs:
            raise ValueError("stream: generate_stream returns all outputs: use gRPC, or remove workload.outputs")
        unchecked = "the events of generate_stream have neither datatypes nor shapes, and are not checked"
        if check.outputs:
            raise ValueError(f"check.outputs: {unchecked}: use gRPC, or remove check.outputs")
        if slo is not None and slo.wrong_answers is not None:
            raise ValueError(f"slo.wrong_answers: {unchecked}: use gRPC, or remove wrong_answers")
