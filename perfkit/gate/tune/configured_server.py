"""How a configuration is applied to a server, and how the server is put back.

A model on a running Triton is loaded again with another configuration; a server that a command starts is started with other arguments,
or on a copy of its model repository with other configurations.
"""

import asyncio
import contextlib
import pathlib
import threading
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Protocol, Self

from perfkit.errors import PerfkitError, ServerFailedError, TargetError
from perfkit.gate.arm import Arm, GateContext, RunningTarget, running_target
from perfkit.gate.pairs import Stage
from perfkit.gate.tune.model_control import LOADS_WITHIN_NS, ModelControl, models_text
from perfkit.gate.tune.repository import ModelRepository, first_error
from perfkit.gate.tune.space import Candidate
from perfkit.override import override
from perfkit.target.changed_model import clear_marks_of, restore_command
from perfkit.units import NS_PER_S

_RESTORED_WITHIN_S = 2 * LOADS_WITHIN_NS / NS_PER_S
"""A load that is under way is awaited: the call, and then until the model is ready."""


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
    """A server that is started anew for each visit, with `repository` on a copy of it; nothing of it is left at the end."""

    def __init__(self, repository: ModelRepository | None = None) -> None:
        self._repository = repository

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
            command = candidate.command
            if self._repository is not None:
                context.folder.mkdir(parents=True, exist_ok=True)
                configs = candidate.configs if candidate.number else {}  # the present one as it is written there
                command = ends.enter_context(self._repository.placed(command, configs, context.folder))
            try:
                target = await ends.enter_async_context(running_target(Arm(command=command), context, stage))
            except ServerFailedError as error:
                words = first_error(context.folder / stage.log_name, candidate.configs) if self._repository is not None else ""
                raise RefusedCandidateError(words or str(error)) from None
            yield target

    @override
    def end_now(self) -> str:
        return ""


class ReloadedServer(ConfiguredServer):
    """A running server whose models are loaded with each configuration; `present` has those to put back, which `folder` has stored."""

    def __init__(self, control: ModelControl, present: Mapping[str, str], folder: pathlib.Path, target: RunningTarget) -> None:
        self._control, self._present, self._folder, self._target = control, present, folder, target
        self._marks = control.marks(present, folder)
        self._changing = threading.Lock()
        """Held while a model is loaded, so that it is put back only after that."""
        self._has_changed = self._is_restored = self._has_loaded_present = False

    @override
    async def __aenter__(self) -> Self:
        self._marks.set()
        return self

    @override
    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        problem, cancellation = await _to_its_end(self._restore_in_turn()) if self._has_changed else ("", None)
        if problem:
            self._marks.release()
            raise TargetError(self._unrestored(problem)) from error
        self._marks.clear()
        if cancellation is not None and error is None:
            raise cancellation

    @override
    @contextlib.asynccontextmanager
    async def applied(self, candidate: Candidate, context: GateContext, stage: Stage) -> AsyncIterator[RunningTarget]:
        self._has_changed = True  # unless an answer says otherwise
        words = await self._load(candidate.configs)
        if words and not self._has_loaded_present and (candidate.number == 0 or await self._load(self._present)):
            self._has_changed = self._control.has_loaded
            raise self._control.refused(words)
        self._has_loaded_present = True
        if words:
            raise RefusedCandidateError(words)
        yield self._target

    @override
    def end_now(self) -> str:
        if not self._has_changed:
            self._marks.clear()
            return ""
        if not self._changing.acquire(timeout=_RESTORED_WITHIN_S):
            return self._unrestored(f"it was not put back within {_RESTORED_WITHIN_S:.0f} s")
        if self._is_restored:
            return ""
        problem = asyncio.run(self._control.restore(self._present))  # the other event loop may hang
        if problem:
            return self._unrestored(problem)
        self._marks.clear()
        clear_marks_of(self._folder)  # those that were left after a first attempt
        return ""

    async def _load(self, configs: Mapping[str, str]) -> str:
        """Loads a configuration, to the end even if this is cancelled: a load that goes on would undo what is put back meanwhile."""
        with self._changing:
            words, cancellation = await _to_its_end(self._control.load(configs))
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
                self._marks.clear()
            return problem
        finally:
            self._changing.release()

    def _unrestored(self, problem: str) -> str:
        return (
            f"{self._control.address}: the configuration of {models_text(self._present)} was not put back: {problem}; "
            f"`{restore_command(self._folder)}` puts back the one before"
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
