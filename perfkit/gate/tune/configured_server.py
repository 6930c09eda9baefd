"""How a configuration is applied to a server, and how the server is put back.

A model on a running Triton is loaded again with another configuration; a server that a command starts is started with other arguments.
"""

import asyncio
import contextlib
import dataclasses
import pathlib
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Protocol, Self

from perfkit.clock import Clock
from perfkit.errors import MissingEndpointError, PerfkitError, ServerFailedError, TargetError, UsageError
from perfkit.gate.arm import Arm, GateContext, RunningTarget, running_target
from perfkit.gate.pairs import Stage
from perfkit.gate.tune.space import Candidate, is_same_config
from perfkit.measurement.connections import transport_options
from perfkit.override import override
from perfkit.scenario.credentials import resolve_address
from perfkit.scenario.file import LoadedScenario
from perfkit.target.address import Address
from perfkit.target.changed_model import ChangedModel, restore_command
from perfkit.target_client import Client, make_client
from perfkit.units import NS_PER_S

_LOADS_WITHIN_NS = 300 * NS_PER_S
_POLL_NS = NS_PER_S // 50
_RESTORED_WITHIN_S = 2 * _LOADS_WITHIN_NS / NS_PER_S
"""A load that is under way is awaited: the call, and then until the model is ready."""
_START = "start Triton with --model-control-mode=explicit --load-model={model}, or have perfkit start the server for each configuration: cmd:COMMAND"


class RefusedCandidateError(PerfkitError):
    """A configuration that the server cannot have; the message is the server's words."""


class ConfiguredServer(Protocol):
    """A server to which each candidate's configuration can be applied; leaving its context puts the present one back."""

    async def __aenter__(self) -> Self:
        """Prepares the first change."""

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Puts the server back, however often this is cancelled; raises TargetError if it cannot, unless another error is on its way."""

    def applied(self, candidate: Candidate, context: GateContext, stage: Stage) -> AbstractAsyncContextManager[RunningTarget]:
        """The server with a configuration, for the length of the block; raises RefusedCandidateError."""

    def end_now(self) -> str:
        """Puts the server back from any thread, because this process is about to end; what is wrong if it cannot, otherwise empty."""


class RestartedServer(ConfiguredServer):
    """A server that is started anew for each visit; nothing of it is left at the end."""

    @override
    async def __aenter__(self) -> Self:
        return self

    @override
    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass

    @override
    @contextlib.asynccontextmanager
    async def applied(self, candidate: Candidate, context: GateContext, stage: Stage) -> AsyncIterator[RunningTarget]:
        async with contextlib.AsyncExitStack() as ends:
            try:
                target = await ends.enter_async_context(running_target(Arm(command=candidate.applied), context, stage))
            except ServerFailedError as error:
                raise RefusedCandidateError(str(error)) from None
            yield target

    @override
    def end_now(self) -> str:
        return ""


class ModelControl:
    """The configuration of one model of a running server: read, replaced and put back."""

    def __init__(self, loaded: LoadedScenario, url: str, clock: Clock) -> None:
        target = loaded.scenario.target
        self.address: Address = resolve_address(target, url, loaded.folder)
        self.model, self._version, self._clock = target.model, target.version, clock
        self._options = dataclasses.replace(transport_options(loaded.scenario, self.address.protocol), timeout_ns=_LOADS_WITHIN_NS)
        if self.address.protocol != "http":
            raise UsageError(f"{self.address}: a model's configuration is read and changed over HTTP: give the server's http:// URL")

    async def read(self) -> str:
        """The present configuration, byte for byte; raises TargetError."""
        async with self._connected() as client:
            try:
                return await client.model_config_text(self.model, self._version)
            except MissingEndpointError as error:
                raise UsageError(
                    f"{error}; only a server with the model configuration extension, such as Triton, can be tuned at a URL: give cmd:COMMAND"
                ) from None

    async def load(self, config: str) -> str:
        """Loads the model with a configuration, and waits until it is ready; the server's words if it refuses."""
        async with self._connected() as client:
            if refusal := await client.load_model(self.model, config):
                return refusal
            deadline_ns = self._clock.now_ns() + _LOADS_WITHIN_NS
            while not await client.is_ready(self.model, self._version):
                if self._clock.now_ns() > deadline_ns:
                    return "the model was loaded, but did not become ready"
                await self._clock.sleep_until_ns(self._clock.now_ns() + _POLL_NS)
            return ""

    async def restore(self, present: str) -> str:
        """Puts a configuration back: that of the repository if it is the same, otherwise as it was read. What is wrong if it cannot, else empty."""
        try:
            async with self._connected() as client:
                refusal = await client.load_model(self.model)
                if not refusal and is_same_config(await client.model_config_text(self.model, self._version), present):
                    return ""
                if refusal := await client.load_model(self.model, present):
                    return refusal
                found = await client.model_config_text(self.model, self._version)
                return "" if is_same_config(found, present) else "the server's configuration is still another one"
        except PerfkitError as error:
            return str(error)

    def refused(self, words: str) -> UsageError:
        """The error where the server does not load its own configuration."""
        return UsageError(
            f"{self.address}: the server does not load model '{self.model}' again: {words}: {_START.format(model=self.model)}"
        )

    def _connected(self) -> AbstractAsyncContextManager[Client]:
        return contextlib.aclosing(make_client(self.address, self._options, self._clock))


class ReloadedServer(ConfiguredServer):
    """A running server whose model is loaded with each configuration; `present` is the one to put back, which `folder` has stored."""

    def __init__(self, control: ModelControl, present: str, folder: pathlib.Path, cpus: tuple[int, ...]) -> None:
        self._control, self._present, self._folder, self._cpus = control, present, folder, cpus
        self._mark = ChangedModel(control.address, control.model, folder)
        self._changing = threading.Lock()
        """Held while the model is loaded, so that it is put back only after that."""
        self._has_changed = self._is_restored = self._has_loaded_present = False

    @override
    async def __aenter__(self) -> Self:
        self._mark.set()
        return self

    @override
    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        problem, cancellation = await _to_its_end(self._restore_in_turn()) if self._has_changed else ("", None)
        if problem:
            self._mark.release()
            raise TargetError(self._unrestored(problem)) from error
        self._mark.clear()
        if cancellation is not None and error is None:
            raise cancellation

    @override
    @contextlib.asynccontextmanager
    async def applied(self, candidate: Candidate, context: GateContext, stage: Stage) -> AsyncIterator[RunningTarget]:
        had_changed, self._has_changed = self._has_changed, True
        words = await self._load(candidate.applied)
        if words and not self._has_loaded_present and (candidate.number == 0 or await self._load(self._present)):
            self._has_changed = had_changed
            raise self._control.refused(words)
        self._has_loaded_present = True
        if words:
            raise RefusedCandidateError(words)
        url = context.loaded.scenario.target.urls_by_protocol["http"][0]
        yield RunningTarget(url, self._cpus)

    @override
    def end_now(self) -> str:
        if not self._has_changed:
            self._mark.clear()
            return ""
        if not self._changing.acquire(timeout=_RESTORED_WITHIN_S):
            return self._unrestored(f"it was not put back within {_RESTORED_WITHIN_S:.0f} s")
        if self._is_restored:
            return ""
        problem = asyncio.run(self._control.restore(self._present))  # the other event loop may hang
        if problem:
            return self._unrestored(problem)
        self._mark.clear()
        return ""

    async def _load(self, config: str) -> str:
        """Loads a configuration, to the end even if this is cancelled: a load that goes on would undo what is put back meanwhile."""
        with self._changing:
            words, cancellation = await _to_its_end(self._control.load(config))
        if cancellation is not None:
            raise cancellation
        return words

    async def _restore_in_turn(self) -> str:
        """Restores unless another thread does so, and then ends this process."""
        await asyncio.to_thread(self._changing.acquire)
        try:
            problem = await self._control.restore(self._present)
            self._is_restored = not problem
            if self._is_restored:
                self._mark.clear()
            return problem
        finally:
            self._changing.release()

    def _unrestored(self, problem: str) -> str:
        return (
            f"{self._control.address}: the configuration of model '{self._control.model}' was not put back: {problem}; `{restore_command(self._folder)}` puts "
            "back the one before"
        )


async def _to_its_end(work: Coroutine[Any, Any, str]) -> tuple[str, asyncio.CancelledError | None]:
    """The result of what must not be left halfway, and the last cancellation that came meanwhile, by Ctrl-C or whoever awaits this."""
    task, cancellation = asyncio.ensure_future(work), None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancellation = error
    return task.result(), cancellation
