"""What a scenario with sequences may not have beside them."""

from perfkit.scenario.load import ClosedLoadSpec, LoadSpec, OpenLoadSpec, ReplayLoadSpec
from perfkit.scenario.sequences import Sequences
from perfkit.scenario.workload import SharedMemorySpec, Workload


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
