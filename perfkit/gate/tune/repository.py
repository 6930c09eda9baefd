"""A model repository on disk, of which each server that a tune starts has a copy; the repository itself is never written."""

import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping

from perfkit.clock import Clock
from perfkit.errors import UsageError
from perfkit.gate.arm import READY_WITHIN_NS
from perfkit.gate.tune.model_control import ModelControl
from perfkit.gate.tune.pbtxt import config_text
from perfkit.gate.tune.space import REPOSITORY
from perfkit.machine.cpus import usable_cpus
from perfkit.measurement.run_target import placed_command, run_command
from perfkit.scenario.credentials import resolve_address
from perfkit.scenario.file import LoadedScenario
from perfkit.target.address import WireProtocol
from perfkit.workers.local import place

_PLACE = f"{{{REPOSITORY}}}"
_LARGEST_COPIED_BYTES = 2**20
_ERROR_LINE, _LONGEST_ERROR = re.compile(r"E\d{4} "), 300


class ModelRepository:
    """A folder with a folder for each model. Large files of its copies are links to its own; raises UsageError if it lacks the model."""

    def __init__(self, folder: pathlib.Path, model: str) -> None:
        self.folder = folder.resolve()
        if not (self.folder / model).is_dir():
            raise UsageError(f"--repository {folder}: it has no folder {model}, and the model's configuration is in {model}/config.pbtxt")

    @contextlib.contextmanager
    def placed(self, command: str, configs: Mapping[str, str], inside: pathlib.Path | None = None) -> Iterator[str]:
        """The command with the folder of a copy, which has other configurations of some models, and is removed after the block."""
        with tempfile.TemporaryDirectory(prefix="repository-" if inside else "perfkit-repository-", dir=inside) as name:
            copy = pathlib.Path(name).resolve()
            try:
                shutil.copytree(self.folder, copy, copy_function=_copied, ignore_dangling_symlinks=True, dirs_exist_ok=True)
                for model, config in configs.items():
                    (copy / model).chmod(0o755)
                    file = copy / model / "config.pbtxt"
                    file.unlink(missing_ok=True)
                    file.write_text(config_text(json.loads(config)), encoding="utf-8")
            except OSError as error:  # also of several files
                raise UsageError(f"--repository {self.folder}: it cannot be copied: {error}") from None
            yield command.replace(_PLACE, shlex.quote(str(copy)))

    def read_present(self, loaded: LoadedScenario, command: str, clock: Clock, ready_within_ns: int | None) -> dict[str, str]:
        """Starts the server once with the repository as it is; its configurations as `ModelControl.read`. Raises UsageError, TargetError."""
        import uvloop

        return uvloop.run(self._read_present(loaded, command, clock, ready_within_ns))

    async def _read_present(self, loaded: LoadedScenario, command: str, clock: Clock, ready_within_ns: int | None) -> dict[str, str]:
        target = loaded.scenario.target
        protocols: list[WireProtocol] = list(dict.fromkeys([*target.load_protocols, "http"]))
        with self.placed(command, {}) as on_copy, tempfile.TemporaryDirectory(prefix="perfkit-log-") as logs:
            started, urls = placed_command(on_copy, protocols)
            given = {protocol: some[0] for protocol, some in target.urls_by_protocol.items()}
            if "http" not in given and (given or ("http" not in target.load_protocols and "{http_port}" not in command)):
                raise UsageError(
                    f"{command}: the model's configuration is read over HTTP: write {{http_port}} and {{grpc_port}} in it, where the server takes them"
                )
            async with run_command(
                started,
                urls,
                [(target, resolve_address(target, url, loaded.folder)) for url in (given or urls).values()],
                cpus=place(loaded.scenario, usable_cpus()).server,
                log=pathlib.Path(logs, "log"),
                clock=clock,
                ready_within_ns=ready_within_ns
                or (target.ready_within_ns if "ready_within_ns" in target.model_fields_set else READY_WITHIN_NS),
                limit_key="--ready-timeout",
            ):
                return await ModelControl(loaded, (given or urls)["http"], clock).read()


def first_error(log: pathlib.Path, models: Collection[str]) -> str:
    """The first line of a Triton's log that is an error and names one of the models, without its origin; empty if there is none."""
    with log.open(encoding="utf-8", errors="replace") as lines:
        errors = (line.partition("] ")[2].strip() for line in lines if _ERROR_LINE.match(line))
        found = next((error for error in errors if any(model in error for model in models)), "")
    return f"{found[:_LONGEST_ERROR]}…" if len(found) > _LONGEST_ERROR else found


def _copied(source: str, copy: str) -> str:
    """Copies a small file; a large one becomes a hard link, or a symbolic one on another file system."""
    file = pathlib.Path(source).resolve()
    if file.stat().st_size <= _LARGEST_COPIED_BYTES:
        return str(shutil.copy2(file, copy))
    try:
        os.link(file, copy)
    except OSError:
        pathlib.Path(copy).symlink_to(file)
    return copy
