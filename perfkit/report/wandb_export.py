"""Results as runs of Weights & Biases, by its own client, which is an extra."""

import os
import pathlib
import re
import threading
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from perfkit.errors import UsageError
from perfkit.installation import install_command
from perfkit.report.export import plain_name
from perfkit.report.figures_by_name import ARTIFACTS, metrics_of
from perfkit.result.file import read_result
from perfkit.result.model import Result

_ADVICE = re.compile(r" (Please try|Consider) increasing the .*")
_INIT_S, _UPLOAD_S, _STOP_S = 30, 60, 5
_SETTINGS = {
    "console": "off",
    "silent": True,
    # of this machine, its packages and the current folder, which are not those of the result
    "disable_git": True,
    "save_code": False,
    "x_disable_meta": True,
    "x_disable_stats": True,
    "x_save_requirements": False,
    # by default the client asks a server that is away for minutes, or without end
    "init_timeout": _INIT_S,
    "finish_timeout": _UPLOAD_S,
    "finish_timeout_raises": True,
    "x_graphql_retry_max": 2,
    "x_file_stream_retry_max": 2,
    "x_file_transfer_retry_max": 2,
}


def log_runs(folders: Sequence[pathlib.Path], project: str) -> list[str]:
    """Logs each result as a finished run of a project, and returns a line for each.

    Server, key and mode are those of the client's variables, such as WANDB_MODE=offline. Raises UsageError if the client is not installed
    or disabled, or the server does not take all of a run in time, and ResultError.
    """
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # which the client repeats for seconds when it ends
    try:
        import wandb
    except ImportError:
        raise UsageError(f"--wandb needs the client of Weights & Biases: {install_command('wandb')}") from None
    results, lines = [read_result(folder) for folder in folders], []
    for result, folder in results:
        metrics = metrics_of(result)
        try:
            lines.append(f"{_log_run(wandb, result, folder, project, metrics)}: {folder}")
        except UsageError:
            _stop(wandb)
            raise
        except Exception as error:  # noqa: BLE001 - the client's have no common class
            _stop(wandb)
            raise UsageError(f"--wandb {project}: {_in_words(error)}") from None
        except BaseException:  # such as Ctrl-C
            _stop(wandb)
            raise
    return lines


def _log_run(wandb: Any, result: Result, folder: pathlib.Path, project: str, metrics: dict[str, float]) -> str:
    """Logs a result, and returns what the run is."""
    scenario, source = str(result.scenario.get("name") or "perfkit"), result.environment.get("source") or {}
    facts = {"status": result.status, "status_reason": result.status_reason, "started_at": result.started_at}
    facts |= {key: source[key] for key in ("commit", "branch") if source.get(key)}
    config, settings = {**result.scenario, "perfkit": facts}, wandb.Settings(**_SETTINGS)
    run = wandb.init(project=project, name=scenario, job_type="perfkit", config=config, settings=settings, reinit="create_new")
    if run.disabled:
        raise UsageError("--wandb: the client is disabled and logs nothing: remove WANDB_MODE=disabled, or run `wandb enabled`")
    told = _Told()
    wandb.termsetup(run.settings, told)
    run.log(metrics)
    artifact = wandb.Artifact(plain_name(f"{scenario}-{run.id}"), type="perfkit-result")
    for file in (folder / name for name in ARTIFACTS):
        if file.is_file():
            artifact.add_file(str(file))
    run.log_artifact(artifact)
    if not run.offline:
        artifact.wait(timeout=_UPLOAD_S)
    run.finish(exit_code=0 if result.status == "complete" else 1)
    if told.refusal:
        raise UsageError(f"--wandb {project}: the server did not take the figures of run {run.id}: {told.refusal}")
    upload = f"; to upload it: wandb sync {run.settings.sync_dir}" if run.offline else ""
    return f"run {run.id} of the project {project} of Weights & Biases{upload}"


class _Told:
    """Takes what the client would print, and keeps that figures were not uploaded: no call of it raises that."""

    refusal = ""

    def info(self, message: str) -> None:
        """Takes what is no problem."""

    def warning(self, message: str) -> None:
        """Takes a warning."""
        if "Fatal error" in message:
            self.refusal = message

    error = warning


def _stop(wandb: Any) -> None:
    """Ends the client, whose run is failed then, but does not wait long: without it the client waits for its uploads when perfkit exits."""
    stop = threading.Thread(target=wandb.teardown, kwargs={"exit_code": 1}, daemon=True)
    stop.start()
    stop.join(_STOP_S)


def _in_words(error: Exception) -> str:
    """What an error says, without the advice for callers of the client."""
    if isinstance(error, ValidationError):
        first = error.errors(include_input=False)[0]
        key = "_".join(map(str, first["loc"]))
        return f"WANDB_{key.upper()}, or {key} in the client's settings file: {first['msg']}"
    return _ADVICE.sub("", " ".join(str(error).split())) or type(error).__name__
