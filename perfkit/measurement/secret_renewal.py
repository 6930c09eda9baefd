"""Reads a target's secrets again while load is sent, and tells the workers the new headers."""

import asyncio
import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from perfkit.clock import Clock
from perfkit.errors import ScenarioError
from perfkit.load.loop import Stoppable
from perfkit.measurement.run_target import RunTarget, WorkloadKey
from perfkit.scenario.secret_values import SecretRereading

if TYPE_CHECKING:
    from perfkit.measurement.scenario_run import ScenarioRun


class SecretRenewal:
    """Reads the secrets of the runs' target again and again, by a thread, so that neither the driver nor the workers wait for a command.

    A secret that cannot be read keeps its value, of which `note` is told once; the others are renewed.
    """

    def __init__(self, runs: "Sequence[ScenarioRun]", target: RunTarget, clock: Clock, note: Callable[[str], None]) -> None:
        sources = [source for plain in runs[0].plain.values() for source in plain.scenario.target.secrets.values()]
        self._every_ns = min((source.every_ns for source in sources), default=None)
        self._runs, self._target, self._clock, self._note = runs, target, clock, note
        self._known = target.addresses
        self._sending: tuple[Any, Sequence[WorkloadKey]] | None = None

    @contextlib.contextmanager
    def follow(self) -> Iterator[None]:
        """Renews the secrets until the block ends; a secret that cannot be read does not end the block."""
        stopped = threading.Event()
        task = None if self._every_ns is None else asyncio.ensure_future(self._renew(self._every_ns, stopped))
        try:
            yield
        finally:
            stopped.set()
            if task is not None:
                task.cancel()

    @contextlib.contextmanager
    def telling(self, workloads: Sequence[WorkloadKey]) -> Iterator[Callable[[Stoppable], None]]:
        """Yields a function to call with the workers of a load point, which send these workloads.

        They are told of each change until the block ends, and at once if their requests were prepared with older secrets. After the block their
        processes may have another load point's workloads.
        """

        def set_loop(group: Stoppable) -> None:
            self._sending = (group, workloads)
            if self._known is not self._target.addresses:
                self._pass_on()

        try:
            yield set_loop
        finally:
            self._sending = None

    async def _renew(self, every_ns: int, stopped: threading.Event) -> None:
        told = set[str]()
        while True:
            await self._clock.sleep_until_ns(self._clock.now_ns() + every_ns)
            rereading, addresses = SecretRereading(stopped), self._known
            failures: Iterable[str] = rereading.failures.values()
            try:
                addresses = await asyncio.to_thread(self._target.resolve, rereading)
            except ScenarioError as error:  # a value that fits no header or URL
                failures = [*failures, str(error)]
            for failure in failures:
                if failure not in told:
                    self._note(f"{failure}; the value from before is used")
                told.add(failure)
            if addresses == self._known:
                continue
            self._known = addresses
            for run in self._runs:
                run.workloads = {key: dataclasses.replace(one, address=addresses[key]) for key, one in run.workloads.items()}
            self._pass_on()

    def _pass_on(self) -> None:
        if self._sending is not None:
            group, workloads = self._sending
            group.renew([self._known[key] for key in workloads])
