"""Records the replies of one loop that several workloads share, each workload by itself."""

from collections.abc import Callable, Sequence

import numpy as np

from perfkit.recorder.batches import tally
from perfkit.recorder.recorder import Recorder
from perfkit.recorder.series import Instants
from perfkit.transport.base import Reply


class MixRecorder:
    """Passes each reply to the recorder of its workload; `choices` gives, for each variant of the loop, the workload and its own variant."""

    def __init__(self, recorders: Sequence[Recorder], choices: Sequence[tuple[int, int]]) -> None:
        self._recorders = recorders
        self._places: list[tuple[Callable[[Reply], None], int]] = [(recorders[workload].add, variant) for workload, variant in choices]
        self._workloads = np.array([workload for workload, _ in choices], dtype=np.int64)

    @property
    def replies(self) -> int:
        """See `Recorder.replies`."""
        return sum(recorder.replies for recorder in self._recorders)

    @property
    def failed(self) -> int:
        """The number of failed replies so far."""
        return sum(recorder.failed for recorder in self._recorders)

    def add(self, reply: Reply) -> None:
        """See `Recorder.add`; the reply's variant becomes that of its workload."""
        add, reply.variant = self._places[reply.variant]
        add(reply)

    def drop(self, intended_ns: Instants, variants: Instants, is_late: bool) -> None:
        """See `Recorder.drop`; `variants` are those of the loop."""
        workloads = self._workloads[variants]
        for workload, _ in tally(workloads):
            self._recorders[workload].drop(intended_ns[workloads == workload], is_late)
